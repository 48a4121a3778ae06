//! The client against Debian's smbd, started for this test alone. If smbd is not installed the test says so and passes.

use smb::wire::{Dialect, fsctl};
use smb_client::{
    Client, ClientError, Credentials, Encryption, NtHash, OpenOptions, Options, Request, Signing,
};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use types::NtStatus;

const PASSWORD: &str = "Gehe1m!ä";

struct Samba {
    process: Child,
    port: u16,
    user: String,
    _directory: TempDir,
}

impl Drop for Samba {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Samba {
    fn start() -> Option<Self> {
        if !Path::new("/usr/sbin/smbd").exists() || !Path::new("/usr/bin/smbpasswd").exists() {
            eprintln!("skipped: smbd is not installed");
            return None;
        }
        let id = Command::new("id").arg("-un").output().unwrap();
        let user = String::from_utf8(id.stdout).unwrap().trim().to_owned();
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().display();
        for name in ["private", "state", "lock", "cache", "rpc", "share"] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
        }
        let port = free_port();
        let config = format!(
            "[global]\nserver role = standalone server\nnetbios name = PEER\nsmb ports = {port}\ninterfaces = lo\n\
             bind interfaces only = yes\nprivate dir = {root}/private\nlock directory = {root}/lock\n\
             state directory = {root}/state\ncache directory = {root}/cache\npid directory = {root}\n\
             ncalrpc dir = {root}/rpc\nlog file = {root}/log\npassdb backend = tdbsam:{root}/private/passdb.tdb\n\
             disable netbios = yes\nserver min protocol = SMB2_02\nload printers = no\n\
             [demo]\npath = {root}/share\nread only = no\n\
             [sealed]\npath = {root}/share\nread only = no\nsmb encrypt = required\n"
        );
        let path = directory.path().join("smb.conf");
        std::fs::write(&path, config).unwrap();
        let mut passwd = Command::new("/usr/bin/smbpasswd")
            .arg("-c")
            .arg(&path)
            .args(["-s", "-a", &user])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        passwd.stdin.take().unwrap().write_all(format!("{PASSWORD}\n{PASSWORD}\n").as_bytes()).unwrap();
        if !passwd.wait().unwrap().success() {
            eprintln!("skipped: smbpasswd does not work for this user");
            return None;
        }
        let process = Command::new("/usr/sbin/smbd")
            .args(["-F", "--no-process-group", "-s"])
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let samba = Self { process, port, user, _directory: directory };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(start.elapsed() < Duration::from_secs(20), "smbd does not listen");
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(samba)
    }

    fn connect_as(&self, user: &str, password: &str, options: Options) -> Result<Client, ClientError> {
        let credentials = Credentials::User {
            user: user.into(),
            domain: String::new(),
            workstation: "TEST".into(),
            hash: NtHash::from_password(password),
            target_name: "cifs/127.0.0.1".into(),
        };
        Client::connect("127.0.0.1", self.port, credentials, options)
    }

    fn connect(&self, options: Options) -> Client {
        self.connect_as(&self.user, PASSWORD, options).unwrap()
    }
}

fn status(result: Result<impl Sized, ClientError>) -> Option<NtStatus> {
    result.err().and_then(|error| error.status())
}

#[test]
fn every_dialect_and_protection_carries_data_there_and_back() {
    let Some(samba) = Samba::start() else { return };
    let data: Vec<u8> = (0..300_001_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for dialect in Dialect::ALL {
        for (signing, encryption) in [
            (Signing::IfRequired, Encryption::IfRequired),
            (Signing::Required, Encryption::IfRequired),
            (Signing::Required, Encryption::Required),
        ] {
            let options =
                Options { oldest: dialect, newest: dialect, signing, encryption, ..Options::default() };
            if encryption == Encryption::Required && dialect < Dialect::Smb300 {
                let refused = samba.connect_as(&samba.user, PASSWORD, options);
                assert!(matches!(refused, Err(ClientError::NotOffered("encryption"))));
                continue;
            }
            let mut client = samba.connect(options);
            assert_eq!(client.dialect(), Some(dialect));
            assert_eq!(client.is_encrypted(), encryption == Encryption::Required);
            let tree = client.tree_connect("demo").unwrap();
            let name = format!("{}-{signing:?}-{encryption:?}", dialect.name());
            let file = client.open(tree, &name, OpenOptions::overwrite()).unwrap();
            client.write_at(&file, 5, &data).unwrap();
            client.flush(&file).unwrap();
            assert_eq!(client.read_at(&file, 0, 1 << 20).unwrap()[5..], data);
            assert_eq!(client.read_at(&file, 100, 7).unwrap(), data[95..102]);
            assert_eq!(client.file_status(&file).unwrap().size_bytes, 300_006);
            client.close(file).unwrap();
            client.log_off().unwrap();
        }
    }
}

#[test]
fn names_are_listed_renamed_and_deleted() {
    let Some(samba) = Samba::start() else { return };
    let mut client = samba.connect(Options::default());
    let tree = client.tree_connect("demo").unwrap();
    client.create_directory(tree, "dir").unwrap();
    for i in 0..700 {
        let file = client.open(tree, &format!("dir/name-{i:04}-ünïcode"), OpenOptions::create_new()).unwrap();
        client.close(file).unwrap();
    }
    let listed = client.list(tree, "dir", "*").unwrap();
    assert_eq!(listed.len(), 700);
    assert!(listed.iter().any(|entry| entry.name == "name-0699-ünïcode" && !entry.status.is_directory()));
    assert_eq!(client.list(tree, "dir", "name-001*").unwrap().len(), 10);
    assert!(client.list(tree, "dir", "nothing*").unwrap().is_empty());

    client.rename(tree, "dir/name-0000-ünïcode", "dir\\new", false).unwrap();
    assert!(client.stat(tree, "dir/new").is_ok());
    assert_eq!(status(client.stat(tree, "dir/name-0000-ünïcode")), Some(NtStatus::OBJECT_NAME_NOT_FOUND));
    let onto = client.rename(tree, "dir/new", "dir/name-0001-ünïcode", false);
    assert_eq!(status(onto), Some(NtStatus::OBJECT_NAME_COLLISION));
    client.rename(tree, "dir/new", "dir/name-0001-ünïcode", true).unwrap();
    assert_eq!(status(client.delete(tree, "dir")), Some(NtStatus::DIRECTORY_NOT_EMPTY));
    for entry in client.list(tree, "dir", "*").unwrap() {
        client.delete(tree, &format!("dir/{}", entry.name)).unwrap();
    }
    client.delete(tree, "dir").unwrap();
    assert!(client.stat(tree, "").unwrap().is_directory());
}

#[test]
fn sizes_and_descriptors_are_told_and_changed() {
    let Some(samba) = Samba::start() else { return };
    let mut client = samba.connect(Options::default());
    let tree = client.tree_connect("demo").unwrap();
    let file = client.open(tree, "sized", OpenOptions::overwrite()).unwrap();
    client.set_size(&file, 12_345).unwrap();
    assert_eq!(client.file_status(&file).unwrap().size_bytes, 12_345);
    assert_eq!(client.read_at(&file, 12_340, 100).unwrap(), [0; 5]);
    assert!(client.read_at(&file, 20_000, 100).unwrap().is_empty());
    // A self-relative descriptor of revision 1.
    assert_eq!(client.security_descriptor(&file).unwrap()[0], 1);
    let range = [0_u64.to_le_bytes(), 12_345_u64.to_le_bytes()].concat();
    assert!(client.fsctl(&file, fsctl::QUERY_ALLOCATED_RANGES, &range, 1024).is_ok());
    client.close(file).unwrap();
    assert_eq!(status(client.read_at(&file, 0, 1)), Some(NtStatus::FILE_CLOSED));
}

#[test]
fn a_share_that_demands_encryption_gets_it() {
    let Some(samba) = Samba::start() else { return };
    let mut client = samba.connect(Options { signing: Signing::IfRequired, ..Options::default() });
    let tree = client.tree_connect("sealed").unwrap();
    assert!(tree.must_encrypt && !client.is_encrypted());
    let file = client.open(tree, "x", OpenOptions::overwrite()).unwrap();
    client.write_at(&file, 0, b"sealed").unwrap();
    assert_eq!(client.read_at(&file, 0, 10).unwrap(), b"sealed");
    client.close(file).unwrap();
    client.rename(tree, "x", "y", true).unwrap();
    client.delete(tree, "y").unwrap();
}

#[test]
fn many_operations_are_in_flight_at_once() {
    let Some(samba) = Samba::start() else { return };
    let mut client = samba.connect(Options::default());
    let tree = client.tree_connect("demo").unwrap();
    let file = client.open(tree, "deep", OpenOptions::overwrite()).unwrap();
    let data: Vec<u8> = (0..4096 * 500).map(|i| (i / 4096) as u8).collect();
    client.write_at(&file, 0, &data).unwrap();
    let tokens: Vec<_> = (0..500).map(|i| client.submit_read(&file, i * 4096, 4096).unwrap()).collect();
    for (i, token) in tokens.into_iter().enumerate().rev() {
        assert_eq!(client.wait(token).unwrap().read_data().unwrap()[..], [i as u8; 4096]);
    }
    assert!(client.next_reply().unwrap().is_none());
}

#[test]
fn a_request_that_waits_can_be_cancelled() {
    let Some(samba) = Samba::start() else { return };
    let mut client = samba.connect(Options::default());
    let tree = client.tree_connect("demo").unwrap();
    let directory = client.open(tree, "", OpenOptions::directory()).unwrap();
    // CHANGE_NOTIFY for a change of names that does not happen.
    let mut body = vec![32, 0, 0, 0, 0, 16, 0, 0];
    body.extend_from_slice(&directory.id.persistent.get().to_le_bytes());
    body.extend_from_slice(&directory.id.volatile.get().to_le_bytes());
    body.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
    let mut request = Request::new(smb::wire::Command::ChangeNotify, tree.id, body);
    request.answer_bytes = 4096;
    let token = client.submit(request).unwrap();
    client.echo().unwrap();
    client.cancel(token).unwrap();
    assert_eq!(client.wait(token).unwrap().status(), NtStatus::CANCELLED);
}

#[test]
fn wrong_passwords_users_and_shares_are_clear_errors() {
    let Some(samba) = Samba::start() else { return };
    let wrong = samba.connect_as(&samba.user, "wrong", Options::default());
    assert_eq!(status(wrong), Some(NtStatus::LOGON_FAILURE));
    assert_eq!(
        status(samba.connect_as("nobody-here", "x", Options::default())),
        Some(NtStatus::LOGON_FAILURE)
    );
    let mut client = samba.connect(Options::default());
    assert_eq!(status(client.tree_connect("nothing")), Some(NtStatus::BAD_NETWORK_NAME));
    let tree = client.tree_connect("demo").unwrap();
    let missing = client.open(tree, "a/b/c", OpenOptions::read());
    assert_eq!(status(missing), Some(NtStatus::OBJECT_PATH_NOT_FOUND));
}
