//! A small public-key infrastructure in a folder, made by openssl: names of files are those that
//! libnbd and QEMU look for.

use ftld_device::transport::nbd::{Tls, TlsOptions};
use std::path::{Path, PathBuf};
use std::process::Command;

/// `ca-cert.pem`, and `server` and `client` as `NAME-cert.pem` and `NAME-key.pem`.
pub(crate) struct Certificates {
    folder: PathBuf,
}

impl Certificates {
    pub(crate) fn make(folder: &Path) -> Self {
        std::fs::create_dir_all(folder).unwrap();
        let made = Certificates {
            folder: folder.to_owned(),
        };
        let usage = |key: &str| format!("keyUsage=critical,{key}");
        made.issue(
            "ca",
            &[
                "basicConstraints=critical,CA:TRUE",
                &usage("keyCertSign,cRLSign"),
            ],
        );
        let leaf = [
            "basicConstraints=critical,CA:FALSE",
            &usage("digitalSignature"),
        ];
        let server = [
            "subjectAltName=DNS:localhost,IP:127.0.0.1",
            "extendedKeyUsage=serverAuth",
        ];
        made.issue("server", &[&leaf[..], &server].concat());
        made.issue(
            "client",
            &[&leaf[..], &["extendedKeyUsage=clientAuth"]].concat(),
        );
        made
    }

    /// `ca` signs itself and the others.
    fn issue(&self, name: &str, extensions: &[&str]) {
        let mut command = Command::new("openssl");
        command.args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
        ]);
        // Without the machine's own settings, which would add extensions.
        command.args([
            "-config",
            "/dev/null",
            "-subj",
            &format!("/CN=ftld test {name}"),
        ]);
        command
            .arg("-keyout")
            .arg(self.path(&format!("{name}-key.pem")));
        command
            .arg("-out")
            .arg(self.path(&format!("{name}-cert.pem")));
        if name != "ca" {
            command
                .arg("-CA")
                .arg(self.path("ca-cert.pem"))
                .arg("-CAkey")
                .arg(self.path("ca-key.pem"));
        }
        for extension in extensions {
            command.args(["-addext", extension]);
        }
        let output = command
            .output()
            .unwrap_or_else(|error| panic!("openssl: {error}: apt-get install openssl"));
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    pub(crate) fn options(&self, required: bool, client_ca: bool) -> TlsOptions {
        TlsOptions {
            required,
            cert: self.path("server-cert.pem"),
            key: self.path("server-key.pem"),
            client_ca: client_ca.then(|| self.path("ca-cert.pem")),
        }
    }

    pub(crate) fn server(&self, required: bool, client_ca: bool) -> Tls {
        Tls::load(&self.options(required, client_ca)).unwrap()
    }
}
