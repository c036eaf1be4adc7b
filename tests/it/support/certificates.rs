//! Certificate authorities made for one test, and certificates of theirs, by `openssl`.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// Where nothing else is said: yesterday to long after.
const VALID: [&str; 2] = ["20200101000000Z", "20990101000000Z"];
const PAST: [&str; 2] = ["20200101000000Z", "20210203040506Z"];
const FUTURE: [&str; 2] = ["20980304050607Z", "20990101000000Z"];

/// An authority.
pub struct Authority {
    directory: TempDir,
}

/// A certificate and its key.
#[derive(Clone)]
pub struct Certificate {
    pub chain: PathBuf,
    pub key: PathBuf,
}

impl Authority {
    pub fn new() -> Self {
        let authority = Self { directory: tempfile::tempdir().unwrap() };
        std::fs::write(authority.path("serial"), "1000\n").unwrap();
        std::fs::write(authority.path("index"), "").unwrap();
        let at = authority.directory.path().display();
        let settings = format!(
            "[ca]\ndefault_ca = it\n[it]\ndatabase = {at}/index\nserial = {at}/serial\nnew_certs_dir = {at}\n\
             default_md = sha256\npolicy = any\nunique_subject = no\n[any]\ncommonName = supplied\n"
        );
        std::fs::write(authority.path("conf"), settings).unwrap();
        authority.openssl(&format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj /CN=Authority-{} \
             -keyout ca.key -out ca.pem",
            rand::random::<u32>()
        ));
        authority
    }

    /// The authority's own certificate.
    pub fn pem(&self) -> PathBuf {
        self.path("ca.pem")
    }

    /// A certificate for these names, such as `DNS:localhost,IP:127.0.0.1`.
    pub fn issue(&self, names: &str) -> Certificate {
        self.issue_from(names, VALID)
    }

    pub fn issue_expired(&self, names: &str) -> Certificate {
        self.issue_from(names, PAST)
    }

    pub fn issue_for_later(&self, names: &str) -> Certificate {
        self.issue_from(names, FUTURE)
    }

    fn issue_from(&self, names: &str, [first, last]: [&str; 2]) -> Certificate {
        let name = format!("{:08x}", rand::random::<u32>());
        std::fs::write(self.path(&format!("{name}.ext")), format!("subjectAltName={names}\n")).unwrap();
        self.openssl(&format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN={name} -keyout {name}.key -out \
             {name}.csr"
        ));
        self.openssl(&format!(
            "ca -batch -notext -config conf -cert ca.pem -keyfile ca.key -extfile {name}.ext -startdate {first} -enddate \
             {last} -in {name}.csr -out {name}.pem"
        ));
        Certificate { chain: self.path(&format!("{name}.pem")), key: self.path(&format!("{name}.key")) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn openssl(&self, arguments: &str) {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        let output = Command::new("openssl").args(&arguments).current_dir(self.directory.path()).output().unwrap();
        assert!(output.status.success(), "openssl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// The text of a path.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
