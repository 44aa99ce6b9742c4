// SPDX-License-Identifier: Apache-2.0
//! Network namespaces that are opened while this process has the rights to open them.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use quietwire_base::netns::{self, NotFound};

/// Namespaces that are open now.
static OPEN: Mutex<Vec<Weak<File>>> = Mutex::new(Vec::new());

/// Network namespaces of the other ends of veth pairs. `af-xdp` ports find them until the end of this value, also those that this process
/// may no longer open. An open namespace does not end with its last process, so this value should end when the ports are open.
#[derive(Debug)]
#[must_use]
pub struct PeerNamespaces(Vec<Arc<File>>);

impl PeerNamespaces {
    /// Has ports find these namespaces.
    pub(super) fn holding(files: impl IntoIterator<Item = File>) -> Self {
        let files: Vec<Arc<File>> = files.into_iter().map(Arc::new).collect();
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|file| file.strong_count() > 0);
        open.extend(files.iter().map(Arc::downgrade));
        Self(files)
    }

    /// Returns the number of namespaces.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// Returns the first namespace that is wanted: of those of all [`PeerNamespaces`], and then as [`netns::find`] does.
///
/// # Errors
/// Those of [`netns::find`].
pub(super) fn find(is_wanted: impl Fn(&File, u64) -> bool) -> Result<File, NotFound> {
    let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut open = open.iter().filter_map(Weak::upgrade);
    let found = open.find_map(|file| {
        let file: &File = &file;
        let number = file.metadata().ok()?.ino();
        match is_wanted(file, number) {
            true => file.try_clone().ok(),
            false => None,
        }
    });
    match found {
        Some(file) => Ok(file),
        None => netns::find(is_wanted),
    }
}
