//! The daemon as people start it, in its own directory, on ports of loopback; killed when dropped.

use smb_client::{Client, ClientError, Credentials, Engine, NtHash, Options, Signing, Transport};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

pub const PASSWORD: &str = "Gehe1m!pass";

pub struct Server {
    process: Child,
    pub smb_port: u16,
    pub rdma_port: u16,
    directory: TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Ports that were free a moment ago, each another.
fn free_ports() -> [u16; 3] {
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

impl Server {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// As [`Self::start`], with more options of `cenote quickstart`.
    pub fn start_with(options: &[&str]) -> Self {
        Self::start_at("127.0.0.1", options)
    }

    /// Starts it with SMB Direct at this address of loopback.
    pub fn start_at(rdma_host: &str, options: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let [smb_port, rdma_port, http_port] = free_ports();
        let mut process = Command::new(env!("CARGO_BIN_EXE_cenote"))
            .arg("quickstart")
            .arg("--data")
            .arg(directory.path().join("data"))
            .args(["--smb", &format!("127.0.0.1:{smb_port}"), "--rdma", &format!("{rdma_host}:{rdma_port}")])
            .args(["--http", &format!("127.0.0.1:{http_port}"), "--user", "ana", "--password", PASSWORD])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let server = Self { process, smb_port, rdma_port, directory };
        // The pipe closes when the process ends, so the wait ends too.
        let ready = output.lines().map_while(Result::ok).any(|line| line == "ready");
        assert!(ready, "the server did not start");
        server
    }

    /// Runs a command for this server, which must succeed, and returns its output.
    pub fn cenote(&self, words: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
        let output =
            command.arg("--data").arg(self.directory.path().join("data")).args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn credentials() -> Credentials {
        Credentials::User {
            user: "ana".into(),
            domain: String::new(),
            workstation: "TEST".into(),
            hash: NtHash::from_password(PASSWORD),
            target_name: "cifs/127.0.0.1".into(),
        }
    }

    /// The port of the options' transport.
    pub fn port(&self, options: &Options) -> u16 {
        if options.transport == Transport::Rdma { self.rdma_port } else { self.smb_port }
    }

    pub fn connect_on(&self, engine: &Engine, options: Options) -> Result<Client, ClientError> {
        Client::connect_on(engine, "127.0.0.1", self.port(&options), Self::credentials(), options)
    }

    pub fn connect(&self, options: Options) -> Client {
        self.connect_on(&Engine::new().unwrap(), options).unwrap()
    }
}

/// Neither signed nor encrypted, by this transport.
pub fn plain(transport: Transport) -> Options {
    Options { transport, signing: Signing::IfRequired, ..Options::default() }
}

/// Bytes that show their place and their seed.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let word = |at: u64| (at ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29).to_le_bytes();
    (0..len.div_ceil(8) as u64).flat_map(word).take(len).collect()
}
