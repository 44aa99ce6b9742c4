// SPDX-License-Identifier: Apache-2.0
//! Rings against a slow and obvious driver.
