// SPDX-License-Identifier: Apache-2.0
//! Keys and certificates of the local cluster, made by openssl(1) with each start. They are valid for 30 days.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quietwire_base::Deadline;
use quietwire_base::supervised::Command;

use super::error::{LocalError, io_error};
use super::{ADDRESS, NODE};

/// First address of the range of services, which is that of the API server.
const SERVICE: &str = "10.96.0.1";
/// Time for one command.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Without this file, openssl would add extensions of the machine's configuration.
const CONFIGURATION: &str = "[req]\ndistinguished_name = dn\n[dn]\n";

/// A certificate: the name of its files, its subject, and the names of a server.
struct Subject {
    file: &'static str,
    subject: String,
    names: String,
}

fn subjects() -> Vec<Subject> {
    let client = |file: &'static str, subject: &str| Subject {
        file,
        subject: subject.to_owned(),
        names: format!("DNS:{file}"),
    };
    vec![
        Subject {
            file: "api-server",
            subject: "/CN=kube-apiserver".to_owned(),
            names: format!(
                "DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,IP:127.0.0.1,IP:{SERVICE},IP:{ADDRESS}"
            ),
        },
        Subject {
            file: "etcd",
            subject: "/CN=etcd".to_owned(),
            names: "DNS:localhost,IP:127.0.0.1".to_owned(),
        },
        Subject {
            file: "kubelet-server",
            subject: format!("/CN={NODE}"),
            names: format!("DNS:{NODE},IP:{ADDRESS}"),
        },
        client("admin", "/O=system:masters/CN=admin"),
        client("kubelet", &format!("/O=system:nodes/CN=system:node:{NODE}")),
        client("controller-manager", "/CN=system:kube-controller-manager"),
        client("scheduler", "/CN=system:kube-scheduler"),
    ]
}

/// Makes the authority, a certificate for each program, and the key of tokens of service accounts in a directory.
///
/// # Errors
/// A command fails, or takes longer than 60 s.
pub(super) fn make(directory: &Path) -> Result<(), LocalError> {
    let configuration = directory.join("openssl.cnf");
    fs::write(&configuration, CONFIGURATION).map_err(io_error(&configuration, "writing it"))?;
    let files = |name: &str| {
        let path = |ending: &str| directory.join(format!("{name}.{ending}"));
        (path("key"), path("crt"))
    };
    let authority = files("ca");
    openssl(
        request(&configuration, &authority, "/CN=quietwire-local").args([
            "-addext",
            "basicConstraints=critical,CA:TRUE",
            "-addext",
            "keyUsage=critical,keyCertSign,cRLSign",
            "-addext",
            "subjectKeyIdentifier=hash",
        ]),
    )?;
    for subject in subjects() {
        let names = format!("subjectAltName={}", subject.names);
        let command = request(&configuration, &files(subject.file), &subject.subject)
            .arg("-CA")
            .arg(&authority.1)
            .arg("-CAkey")
            .arg(&authority.0)
            .args([
                "-addext",
                "basicConstraints=critical,CA:FALSE",
                "-addext",
                "keyUsage=critical,digitalSignature",
                "-addext",
                "extendedKeyUsage=serverAuth,clientAuth",
                "-addext",
                names.as_str(),
            ]);
        openssl(command)?;
    }
    // The API server reads public keys of elliptic curves in fewer forms than those of RSA.
    let (key, public) = (
        directory.join("service-accounts.key"),
        directory.join("service-accounts.pub"),
    );
    openssl(
        Command::new("openssl")
            .args(["genrsa", "-out"])
            .arg(&key)
            .arg("2048"),
    )?;
    openssl(
        Command::new("openssl")
            .args(["rsa", "-pubout", "-in"])
            .arg(&key)
            .arg("-out")
            .arg(&public),
    )
}

/// Returns a command that makes a key and a certificate (openssl-req(1)).
fn request(
    configuration: &Path,
    (key, certificate): &(PathBuf, PathBuf),
    subject: &str,
) -> Command {
    Command::new("openssl")
        .args(["req", "-config"])
        .arg(configuration)
        .args(["-x509", "-newkey", "ec", "-pkeyopt"])
        .args(["ec_paramgen_curve:P-256", "-nodes", "-days", "30", "-subj"])
        .arg(subject)
        .arg("-keyout")
        .arg(key)
        .arg("-out")
        .arg(certificate)
}

fn openssl(command: Command) -> Result<(), LocalError> {
    let failed = |reason: String| LocalError::Failed {
        what: command.line(),
        reason,
    };
    let finished = command
        .run(Deadline::after(TIMEOUT))
        .map_err(|error| failed(error.to_string()))?;
    finished.into_result().map(drop).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn certificates_are_of_the_authority_and_keys_are_private() {
        let directory = tempfile::tempdir().unwrap();
        make(directory.path()).unwrap();
        for subject in subjects() {
            let path = |ending: &str| {
                let path = directory.path().join(format!("{}.{ending}", subject.file));
                path.to_str().unwrap().to_owned()
            };
            let authority = directory.path().join("ca.crt");
            let verified = Command::new("openssl")
                .args(["verify", "-CAfile"])
                .arg(&authority)
                .arg(path("crt"))
                .run(Deadline::after(TIMEOUT));
            verified.unwrap().into_result().unwrap();
            let mode = fs::metadata(path("key")).unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{}", subject.file);
        }
        let key = directory.path().join("service-accounts.key");
        let mode = fs::metadata(key).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0);
    }
}
