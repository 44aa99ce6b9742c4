// SPDX-License-Identifier: Apache-2.0
//! Redirection table of a card: the receive queue for each value of the lowest bits of a flow's hash (receive-side scaling).

use super::Device;
use crate::error::{self, Error};
use crate::sys;

/// Largest table (`RTE_ETH_RSS_RETA_SIZE_512`).
const ENTRIES_MAX: u16 = 512;

impl Device {
    /// Distributes the flows of a started device over its first `queues` receive queues, if it has a table that can be set.
    pub(super) fn spread_flows(&self, queues: u16) -> Result<(), Error> {
        let entries = self.info()?.reta_size;
        if queues < 2 || entries == 0 || entries > ENTRIES_MAX {
            return Ok(());
        }
        let table: Vec<u16> = (0..queues).cycle().take(entries.into()).collect();
        match self.update_table(&table, entries) {
            code if code == -nix::libc::ENOTSUP => Ok(()),
            code => self.check(code, "spreading flows over the receive queues"),
        }
    }

    /// Returns the queue of each entry of the table; none without a table, or with one that the driver does not show.
    pub(crate) fn redirection_table(&self) -> Vec<u16> {
        let entries = self.info().map_or(0, |info| info.reta_size);
        if entries > ENTRIES_MAX || self.is_removed() {
            return Vec::new();
        }
        let mut table = vec![0; entries.into()];
        // SAFETY: the port exists; the array has this number of entries.
        let code = unsafe { sys::qw_redirection_table(self.id, table.as_mut_ptr(), entries) };
        if code != 0 {
            table.clear();
        }
        table
    }

    /// Sets the queue of each entry of the table.
    pub(crate) fn set_redirection_table(&self, table: &[u16]) -> Result<(), Error> {
        let info = self.info()?;
        let has_queues = table.iter().all(|queue| *queue < info.nb_rx_queues);
        let code = if table.len() == usize::from(info.reta_size) && has_queues {
            self.update_table(table, info.reta_size)
        } else {
            -nix::libc::EINVAL
        };
        match code {
            0 => Ok(()),
            code => {
                let cause = error::text(code);
                Err(self.steering_error(format!("changing the redirection table: {cause}")))
            }
        }
    }

    /// Sets the table of `entries` entries. Returns 0 or a negative errno.
    fn update_table(&self, table: &[u16], entries: u16) -> i32 {
        // SAFETY: started; the array has this number of entries, and the queues exist.
        unsafe { sys::qw_set_redirection_table(self.id, table.as_ptr(), entries) }
    }
}
