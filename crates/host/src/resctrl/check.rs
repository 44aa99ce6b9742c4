// SPDX-License-Identifier: Apache-2.0
//! Validation of schemata against the limits of the processor and the kernel.

use super::info::{BandwidthInfo, CacheInfo, Info};
use super::schemata::{Schemata, SchemataError};

impl Schemata {
    /// Rounds bandwidth limits up to the processor's granularity, as the kernel does when they are written.
    #[must_use]
    pub fn rounded(&self, info: &Info) -> Self {
        let mut rounded = self.clone();
        let shares = rounded.0.get_mut("MB");
        if let (Some(bandwidth), Some(shares)) = (info.bandwidth, shares) {
            for share in shares.values_mut() {
                *share = share.next_multiple_of(u64::from(bandwidth.bandwidth_gran));
            }
        }
        rounded
    }

    /// Checks the schemata against the limits of the machine, as the kernel does when they are written.
    ///
    /// # Errors
    /// [`SchemataError`].
    pub fn check(&self, info: &Info) -> Result<(), SchemataError> {
        for (resource, domains) in &self.0 {
            for (domain, value) in domains {
                match (info.caches.get(resource), info.bandwidth) {
                    (Some(cache), _) => check_ways(resource, *domain, *value, cache)?,
                    (None, Some(bandwidth)) if resource == "MB" => {
                        check_share(*domain, *value, bandwidth)?;
                    }
                    _ => return Err(unknown(resource, info)),
                }
            }
        }
        Ok(())
    }
}

fn unknown(resource: &str, info: &Info) -> SchemataError {
    let bandwidth = info.bandwidth.map(|_| "MB".to_owned());
    let known: Vec<String> = info.caches.keys().cloned().chain(bandwidth).collect();
    SchemataError::UnknownResource {
        resource: resource.to_owned(),
        known: if known.is_empty() {
            "none".to_owned()
        } else {
            known.join(", ")
        },
    }
}

/// Checks ways by the rules of the kernel's `cbm_validate` (fs/resctrl/ctrlmondata.c).
fn check_ways(
    resource: &str,
    domain: u32,
    mask: u64,
    cache: &CacheInfo,
) -> Result<(), SchemataError> {
    let resource = resource.to_owned();
    if mask & !cache.cbm_mask != 0 || (cache.min_cbm_bits > 0 && mask == 0) {
        return Err(SchemataError::OutOfRange {
            resource,
            domain,
            mask,
            all: cache.cbm_mask,
        });
    }
    let run = mask.checked_shr(mask.trailing_zeros()).unwrap_or(0);
    // The kernel counts only the first run of ways, even if gaps are allowed.
    let first_run = run.trailing_ones();
    if !cache.sparse_masks && run.count_ones() != first_run {
        return Err(SchemataError::Gap {
            resource,
            domain,
            mask,
        });
    }
    if first_run < cache.min_cbm_bits {
        return Err(SchemataError::TooFew {
            resource,
            domain,
            mask,
            min: cache.min_cbm_bits,
        });
    }
    Ok(())
}

/// Checks a bandwidth limit by the rules of the kernel's `bw_validate`.
fn check_share(domain: u32, share: u64, bandwidth: BandwidthInfo) -> Result<(), SchemataError> {
    let min = u64::from(bandwidth.min_bandwidth);
    let max = u64::from(bandwidth.max);
    if (min..=max).contains(&share) {
        return Ok(());
    }
    Err(SchemataError::Share {
        domain,
        share,
        min,
        max,
    })
}
