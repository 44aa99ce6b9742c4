// SPDX-License-Identifier: Apache-2.0
//! Certificate and key of the webhook, from files such as those of a mounted Secret (type `kubernetes.io/tls`).

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Files of a certificate and its key, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Files {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

impl Files {
    /// Reads the files.
    ///
    /// # Errors
    /// The file and the problem.
    pub(super) fn load(&self) -> Result<Arc<ServerConfig>, String> {
        let chain: Result<Vec<CertificateDer<'static>>, _> =
            CertificateDer::pem_file_iter(&self.certificate)
                .map_err(named(&self.certificate))?
                .collect();
        let chain = chain.map_err(named(&self.certificate))?;
        if chain.is_empty() {
            return Err(named(&self.certificate)("no certificate in the file"));
        }
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(named(&self.key))?;
        let versions = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions();
        let config = versions
            .map_err(named(&self.certificate))?
            .with_no_client_auth()
            .with_single_cert(chain, key);
        config.map(Arc::new).map_err(named(&self.certificate))
    }
}

/// Returns a message that names a file.
fn named<E: Display>(path: &Path) -> impl Fn(E) -> String {
    move |problem| format!("{}: {problem}", path.display())
}
