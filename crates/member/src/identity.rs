//! This server's identity in its cluster, in its data directory.
//!
//! Promises: `DATA/cluster` exists whole or not at all; its secrets have mode 0600. Until a join is
//! answered, its key is in `DATA/cluster.new`, so that a join whose answer was lost is repeated with
//! the same key.

use crate::admission::EtcdAddresses;
use records::nodes::Sealed;
use records::replacing::replace_private;
use records::seal::{SealError, SealKey};
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use trust::authority::{AuthorityError, NodeKey, Unrecorded};
use types::NodeId;
use uuid::Uuid;

/// Directory of the identity, below the data directory.
pub const DIRECTORY: &str = "cluster";
const DRAFT: &str = "cluster.new";
/// Rest of an undone founding, to be removed.
const ABANDONED: &str = "cluster.old";
const FACTS: &str = "identity.json";
/// File of the server's private key, in PEM form, mode 0600.
pub const KEY: &str = "node.key";
/// File of the server's certificate, in PEM form.
pub const CERTIFICATE: &str = "node.pem";
/// File of the certificate of the cluster's authority, in PEM form.
pub const AUTHORITY: &str = "authority.pem";
/// Revoked certificates, for etcd, which reads the file at each connection.
pub const REVOKED: &str = "revoked.pem";
const SEAL_KEY: &str = "secret.key";
/// Part of the cluster's records that a server needs when it cannot read them.
const KNOWN: &str = "known.json";
const ETCD: &str = "etcd";
/// The data of a member that was removed, until another one is.
const ETCD_REMOVED: &str = "etcd.removed";
/// The data of the member that a recovery makes; no member's until they replace the old ones.
const ETCD_ANEW: &str = "etcd.anew";
/// Exists from the beginning of a recovery to its end.
const RECOVERING: &str = "recovering";
/// Exists until the founder's records are known to be in etcd.
const FOUNDING: &str = "founding";

/// Why the cluster's files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The operating system refuses to read or write the file or directory.
    #[error("{path}: {source}")]
    Io { path: String, source: io::Error },
    /// The content of an existing file makes no sense.
    #[error("{path} is damaged: {why}; restore DATA/cluster from a backup, or join the cluster anew")]
    Damaged { path: String, why: String },
    /// The sealing key cannot be read or written.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The server's key cannot be made or read.
    #[error(transparent)]
    Key(#[from] AuthorityError),
}

/// The facts that are no secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// The cluster's name.
    pub cluster: String,
    /// UUID of the cluster, drawn when it was founded.
    pub id: Uuid,
    /// Number of this server in the cluster.
    pub node: NodeId,
    /// The server's name.
    pub name: String,
    /// ServerGuid of the SMB server (MS-SMB2 2.2.4).
    pub server_guid: Uuid,
    /// Addresses of this server's own member of etcd, if it runs one.
    #[serde(default)]
    pub etcd: Option<EtcdAddresses>,
    /// Names and peer URLs of the members when it joined.
    #[serde(default)]
    pub initial_members: Vec<(String, String)>,
    /// The first server: its member makes a new etcd, and the records come from its state as a single
    /// server.
    #[serde(default)]
    pub founder: bool,
    /// A witness votes only.
    #[serde(default)]
    pub is_witness: bool,
    /// Client URLs of the members when this server last asked.
    pub endpoints: Vec<String>,
    /// When its certificate was made.
    #[serde(default)]
    pub certified_unix_s: u64,
    /// This server's certificate, if it issued that itself and the cluster's records do not have it yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unrecorded: Option<Unrecorded>,
}

/// Part of the cluster's records that a server keeps for a time in which it cannot read them: to renew
/// its certificate, and to name the servers it waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// The authority's key, sealed as in the cluster's record.
    pub authority_key: Sealed,
    /// Addresses of this server, which its certificate names.
    pub addresses: Vec<IpAddr>,
    /// The other servers that run a member of etcd: name, and address of the cluster's port.
    pub others: Vec<(String, SocketAddr)>,
}

/// Everything that a server keeps of its cluster.
pub struct Identity {
    /// Content of the file that is no secret.
    pub facts: Facts,
    /// Directory that the files are in.
    pub directory: PathBuf,
    /// PEM.
    pub certificate: String,
    /// Certificate of the cluster's authority in PEM form.
    pub authority: String,
    /// Private key of the server in PEM form; wiped when dropped.
    pub key: zeroize::Zeroizing<String>,
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> IdentityError {
    let path = path.display().to_string();
    move |source| IdentityError::Io { path, source }
}

/// Writes a file of mode 0600, whole or not at all.
fn write_private(path: &Path, content: &[u8]) -> Result<(), IdentityError> {
    replace_private(path, content).map_err(io_error(path))
}

fn sync(directory: &Path) -> Result<(), IdentityError> {
    File::open(directory).and_then(|file| file.sync_all()).map_err(io_error(directory))
}

/// Has etcd refuse other certificates than before. `directory`: that of the identity.
///
/// # Errors
/// [`IdentityError::Io`].
pub fn write_revoked(directory: &Path, pem: &str) -> Result<(), IdentityError> {
    write_private(&directory.join(REVOKED), pem.as_bytes())
}

/// Returns the key for this server's joining or founding of a cluster; an earlier try's, if there was
/// one.
///
/// # Errors
/// [`IdentityError`].
pub fn draft_key(data: &Path) -> Result<NodeKey, IdentityError> {
    let draft = data.join(DRAFT);
    DirBuilder::new().recursive(true).mode(0o700).create(&draft).map_err(io_error(&draft))?;
    let path = draft.join(KEY);
    if let Ok(pem) = std::fs::read_to_string(&path)
        && let Ok(key) = NodeKey::from_pem(&pem)
    {
        return Ok(key);
    }
    let key = NodeKey::generate()?;
    write_private(&path, key.pem().as_bytes())?;
    Ok(key)
}

/// Certificates that the cluster gives a server, in PEM.
pub struct Papers<'a> {
    /// The server's own certificate.
    pub certificate: &'a str,
    /// Certificate of the cluster's authority.
    pub authority: &'a str,
    /// Revoked certificates, for etcd.
    pub revoked: &'a str,
}

/// Makes the draft with [`draft_key`]'s key this server's identity.
///
/// # Errors
/// [`IdentityError`]; the server is in no cluster then.
pub fn establish(
    data: &Path,
    facts: &Facts,
    papers: &Papers<'_>,
    seal_key: &SealKey,
) -> Result<(), IdentityError> {
    let draft = data.join(DRAFT);
    write_private(&draft.join(CERTIFICATE), papers.certificate.as_bytes())?;
    write_private(&draft.join(AUTHORITY), papers.authority.as_bytes())?;
    write_private(&draft.join(REVOKED), papers.revoked.as_bytes())?;
    seal_key.write_new(&draft.join(SEAL_KEY))?;
    write_private(&draft.join(FACTS), &serde_json::to_vec_pretty(facts).unwrap_or_default())?;
    if facts.founder {
        write_private(&draft.join(FOUNDING), b"")?;
    }
    sync(&draft)?;
    let directory = data.join(DIRECTORY);
    std::fs::rename(&draft, &directory).map_err(io_error(&directory))?;
    sync(data)
}

/// Removes a directory with its contents, if it exists.
fn remove_whole(path: &Path) -> Result<(), IdentityError> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(io_error(path)),
    }
}

/// Undoes a founder's [`establish`]: this is a single server from then on.
///
/// # Errors
/// [`IdentityError::Io`]: it is still the founder, or may be after a power cut.
pub fn abandon(data: &Path) -> Result<(), IdentityError> {
    let (directory, abandoned) = (data.join(DIRECTORY), data.join(ABANDONED));
    remove_whole(&abandoned)?;
    std::fs::rename(&directory, &abandoned).map_err(io_error(&directory))?;
    sync(data)?;
    if let Err(error) = remove_whole(&abandoned) {
        tracing::warn!(%error, "of a founding that was taken back something is left, which does no harm");
    }
    Ok(())
}

impl Identity {
    /// `None`: this is a single server.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub fn open(data: &Path) -> Result<Option<Self>, IdentityError> {
        let directory = data.join(DIRECTORY);
        if !directory.exists() {
            return Ok(None);
        }
        let read = |name: &str| {
            let path = directory.join(name);
            std::fs::read_to_string(&path).map_err(io_error(&path))
        };
        let facts = read(FACTS)?;
        let facts = serde_json::from_str(&facts).map_err(|error| IdentityError::Damaged {
            path: directory.join(FACTS).display().to_string(),
            why: error.to_string(),
        })?;
        Ok(Some(Self {
            facts,
            certificate: read(CERTIFICATE)?,
            authority: read(AUTHORITY)?,
            key: zeroize::Zeroizing::new(read(KEY)?),
            directory,
        }))
    }

    /// The cluster's key.
    ///
    /// # Errors
    /// [`SealError`].
    pub fn seal_key(&self) -> Result<SealKey, SealError> {
        SealKey::open_existing(&self.directory.join(SEAL_KEY))
    }

    /// Data directory of this server's member of etcd.
    pub fn etcd_directory(&self) -> PathBuf {
        self.directory.join(ETCD)
    }

    /// Whether the founder's records may not be in etcd yet.
    pub fn is_founding(&self) -> bool {
        self.directory.join(FOUNDING).exists()
    }

    /// Notes that the founder's records are in etcd.
    ///
    /// # Errors
    /// [`IdentityError::Io`].
    pub fn end_founding(&self) -> Result<(), IdentityError> {
        let path = self.directory.join(FOUNDING);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(io_error(&path)).and_then(|()| sync(&self.directory)),
        }
    }

    /// Whether a recovery has begun and not ended: the state is unreliable until then.
    pub fn is_recovering(&self) -> bool {
        self.directory.join(RECOVERING).exists()
    }

    /// Notes that a recovery begins.
    ///
    /// # Errors
    /// [`IdentityError::Io`].
    pub fn begin_recovery(&self) -> Result<(), IdentityError> {
        write_private(&self.directory.join(RECOVERING), b"")?;
        sync(&self.directory)
    }

    /// Notes the end of the recovery.
    ///
    /// # Errors
    /// [`IdentityError::Io`].
    pub fn end_recovery(&self) -> Result<(), IdentityError> {
        let path = self.directory.join(RECOVERING);
        std::fs::remove_file(&path).map_err(io_error(&path))?;
        sync(&self.directory)
    }

    /// Removes the data of a founder's member of etcd, none of which is needed.
    ///
    /// # Errors
    /// [`IdentityError::Io`].
    pub fn remove_etcd(&self) -> Result<(), IdentityError> {
        remove_whole(&self.etcd_directory())
    }

    /// Moves the data of this server's member of etcd to a place for no member. Removes data moved there
    /// before.
    ///
    /// # Errors
    /// [`IdentityError::Io`].
    pub fn put_etcd_aside(&self) -> Result<(), IdentityError> {
        let (etcd, aside) = (self.etcd_directory(), self.directory.join(ETCD_REMOVED));
        if !etcd.exists() {
            return Ok(());
        }
        remove_whole(&aside)?;
        std::fs::rename(&etcd, &aside).map_err(io_error(&etcd))?;
        sync(&self.directory)
    }

    /// Directory in which a recovery makes the data for this server's member.
    pub fn etcd_directory_anew(&self) -> PathBuf {
        self.directory.join(ETCD_ANEW)
    }

    /// Moves the complete data of a recovery into the member's place. Moves the old data away first: once
    /// these are gone from their place, the new ones are complete.
    ///
    /// # Errors
    /// [`IdentityError::Io`]; [`Self::resume_recovery`] completes it.
    pub fn take_etcd_anew(&self) -> Result<(), IdentityError> {
        self.put_etcd_aside()?;
        let (anew, etcd) = (self.etcd_directory_anew(), self.etcd_directory());
        std::fs::rename(&anew, &etcd).map_err(io_error(&etcd))?;
        sync(&self.directory)
    }

    /// Completes a [`Self::take_etcd_anew`] that was cut off, or removes data that the recovery has not
    /// made whole.
    ///
    /// # Errors
    /// [`IdentityError::Io`].
    pub fn resume_recovery(&self) -> Result<(), IdentityError> {
        let anew = self.etcd_directory_anew();
        match self.is_recovering() && anew.exists() && !self.etcd_directory().exists() {
            true => self.take_etcd_anew(),
            false => remove_whole(&anew),
        }
    }

    /// Shows another certificate from now on.
    ///
    /// # Errors
    /// [`IdentityError::Io`].
    pub fn replace_certificate(
        &mut self,
        pem: String,
        certified_unix_s: u64,
        unrecorded: Option<Unrecorded>,
    ) -> Result<(), IdentityError> {
        write_private(&self.directory.join(CERTIFICATE), pem.as_bytes())?;
        self.certificate = pem;
        self.remember(Facts { certified_unix_s, unrecorded, ..self.facts.clone() })
    }

    /// Returns the cluster's facts at the last reading of its records; `None`: nothing was written, or the
    /// file is damaged.
    pub fn known(&self) -> Option<Known> {
        serde_json::from_slice(&std::fs::read(self.directory.join(KNOWN)).ok()?).ok()
    }

    /// Stores the cluster's facts.
    ///
    /// # Errors
    /// [`IdentityError::Io`].
    pub fn keep_known(directory: &Path, known: &Known) -> Result<(), IdentityError> {
        let text = serde_json::to_vec_pretty(known).unwrap_or_default();
        if std::fs::read(directory.join(KNOWN)).is_ok_and(|kept| kept == text) {
            return Ok(());
        }
        write_private(&directory.join(KNOWN), &text)
    }

    /// Remembers where the members of etcd are now.
    ///
    /// # Errors
    /// [`IdentityError::Io`].
    pub fn remember(&mut self, facts: Facts) -> Result<(), IdentityError> {
        if facts == self.facts {
            return Ok(());
        }
        write_private(&self.directory.join(FACTS), &serde_json::to_vec_pretty(&facts).unwrap_or_default())?;
        self.facts = facts;
        sync(&self.directory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn facts() -> Facts {
        Facts {
            cluster: "C".into(),
            id: Uuid::from_bytes([1; 16]),
            node: NodeId(2),
            name: "node-2".into(),
            server_guid: Uuid::from_bytes([2; 16]),
            etcd: None,
            initial_members: vec![("node-1".into(), "https://10.1.0.11:40001".into())],
            founder: false,
            is_witness: false,
            endpoints: Vec::new(),
            certified_unix_s: 0,
            unrecorded: None,
        }
    }

    const PAPERS: Papers<'_> =
        Papers { certificate: "certificate", authority: "authority", revoked: "revoked" };

    #[test]
    fn a_server_is_in_no_cluster_until_all_of_its_files_are_there() {
        let data = tempfile::tempdir().unwrap();
        let first = draft_key(data.path()).unwrap();
        assert!(Identity::open(data.path()).unwrap().is_none());
        // A second try has the same key.
        let proof = |key: &NodeKey| key.prove("x").unwrap().public_key;
        assert_eq!(proof(&first), proof(&draft_key(data.path()).unwrap()));
        let seal = SealKey::open_or_create(&data.path().join("key")).unwrap();
        establish(data.path(), &facts(), &PAPERS, &seal).unwrap();
        let mut found = Identity::open(data.path()).unwrap().unwrap();
        assert_eq!(found.facts, facts());
        let sealed = seal.seal("x", b"secret").unwrap();
        assert_eq!(*found.seal_key().unwrap().open("x", &sealed).unwrap(), b"secret");
        for name in [KEY, SEAL_KEY, FACTS] {
            let mode = std::fs::metadata(found.directory.join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        let changed = Facts { endpoints: vec!["https://10.1.0.11:1".into()], ..facts() };
        found.remember(changed.clone()).unwrap();
        assert_eq!(Identity::open(data.path()).unwrap().unwrap().facts, changed);
    }

    #[test]
    fn a_recovery_that_is_cut_off_anywhere_leaves_the_old_data_or_whole_new_ones() {
        let data = tempfile::tempdir().unwrap();
        draft_key(data.path()).unwrap();
        let seal = SealKey::open_or_create(&data.path().join("key")).unwrap();
        establish(data.path(), &facts(), &PAPERS, &seal).unwrap();
        let identity = Identity::open(data.path()).unwrap().unwrap();
        let write = |directory: PathBuf, word: &str| {
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join("word"), word).unwrap();
        };
        let word = || std::fs::read_to_string(identity.etcd_directory().join("word")).unwrap();
        write(identity.etcd_directory(), "old");
        identity.begin_recovery().unwrap();
        // While the new ones are made.
        write(identity.etcd_directory_anew(), "half");
        identity.resume_recovery().unwrap();
        assert!(word() == "old" && !identity.etcd_directory_anew().exists());
        // Between the two renames.
        write(identity.etcd_directory_anew(), "new");
        identity.put_etcd_aside().unwrap();
        for _ in 0..2 {
            identity.resume_recovery().unwrap();
            assert_eq!(word(), "new");
        }
        // A second one, that is not cut off.
        write(identity.etcd_directory_anew(), "newer");
        identity.take_etcd_anew().unwrap();
        assert!(word() == "newer" && !identity.etcd_directory_anew().exists());
    }

    #[test]
    fn a_founder_knows_over_restarts_whether_its_records_may_not_be_in_etcd_yet() {
        for founder in [true, false] {
            let data = tempfile::tempdir().unwrap();
            draft_key(data.path()).unwrap();
            let seal = SealKey::open_or_create(&data.path().join("key")).unwrap();
            establish(data.path(), &Facts { founder, ..facts() }, &PAPERS, &seal).unwrap();
            let open = || Identity::open(data.path()).unwrap().unwrap();
            assert_eq!(open().is_founding(), founder);
            (0..2).for_each(|_| open().end_founding().unwrap());
            assert!(!open().is_founding());
            std::fs::create_dir_all(open().etcd_directory().join("member")).unwrap();
            (0..2).for_each(|_| open().remove_etcd().unwrap());
            assert!(!open().etcd_directory().exists());
        }
    }

    #[test]
    fn a_founding_that_is_abandoned_leaves_a_single_server_that_can_found_again() {
        let data = tempfile::tempdir().unwrap();
        let seal = SealKey::open_or_create(&data.path().join("key")).unwrap();
        assert!(abandon(data.path()).is_err(), "there is nothing to abandon");
        // Leftovers that an earlier call could not remove do no harm.
        std::fs::create_dir_all(data.path().join(ABANDONED).join("etcd")).unwrap();
        for _ in 0..2 {
            draft_key(data.path()).unwrap();
            establish(data.path(), &Facts { founder: true, ..facts() }, &PAPERS, &seal).unwrap();
            let founder = Identity::open(data.path()).unwrap().unwrap();
            assert!(founder.is_founding() && !founder.etcd_directory().exists());
            std::fs::create_dir_all(founder.etcd_directory().join("member")).unwrap();
            abandon(data.path()).unwrap();
            assert!(Identity::open(data.path()).unwrap().is_none());
            assert!(!data.path().join(ABANDONED).exists());
        }
    }

    #[test]
    fn a_damaged_identity_is_told_with_its_file() {
        let data = tempfile::tempdir().unwrap();
        draft_key(data.path()).unwrap();
        let seal = SealKey::open_or_create(&data.path().join("key")).unwrap();
        establish(data.path(), &facts(), &PAPERS, &seal).unwrap();
        std::fs::write(data.path().join(DIRECTORY).join(FACTS), "{").unwrap();
        let error = Identity::open(data.path()).err().unwrap().to_string();
        assert!(error.contains("identity.json is damaged"), "{error}");
    }
}
