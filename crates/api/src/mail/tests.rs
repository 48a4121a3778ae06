use super::*;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Makes a certificate for a name, in PEM form, and the TLS configuration of a server with it.
fn certificate(name: &str) -> (String, Arc<ServerConfig>) {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(crate::tls::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    (made.cert.pem(), Arc::new(config))
}

/// Answers of the server behind its greeting, and to a login.
#[derive(Clone, Copy)]
struct Script {
    offers: &'static str,
    login: &'static str,
    farewell: Option<&'static str>,
}

const LETS_IN: Script = Script { offers: "STARTTLS", login: "235 come in", farewell: Some("221 bye") };

/// Talks SMTP until the client disconnects or begins TLS. Returns the lines received.
fn converse(stream: &mut (impl Read + std::io::Write), greets: bool, script: Script) -> Vec<String> {
    let offers = if greets { script.offers } else { "AUTH PLAIN" };
    let mut lines = Vec::new();
    let mut reader = BufReader::with_capacity(1, stream);
    if greets {
        reader.get_mut().write_all(b"220 test\r\n").unwrap();
    }
    let mut in_text = false;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return lines;
        }
        let line = line.trim_end().to_owned();
        lines.push(line.clone());
        let answer = match line.split(' ').next().unwrap_or_default() {
            "." if in_text => "250 taken".to_owned(),
            _ if in_text => continue,
            "EHLO" => format!("250-test\r\n250 {offers}"),
            "STARTTLS" => "220 go on".to_owned(),
            "AUTH" => script.login.to_owned(),
            "DATA" => "354 the text".to_owned(),
            "QUIT" => match script.farewell {
                Some(farewell) => farewell.to_owned(),
                None => return lines,
            },
            _ => "250 ok".to_owned(),
        };
        in_text = line == "DATA" || in_text && line != ".";
        reader.get_mut().write_all(format!("{answer}\r\n").as_bytes()).unwrap();
        if line == "STARTTLS" || line == "QUIT" {
            return lines;
        }
    }
}

/// Lines received in the clear, and lines over TLS.
type Heard = (Vec<String>, Vec<String>);

/// Takes one connection.
fn server(script: Script, tls: Arc<ServerConfig>) -> (SocketAddr, JoinHandle<Heard>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let task = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let clear = converse(&mut stream, true, script);
        if clear.last().is_none_or(|line| line != "STARTTLS") {
            return (clear, Vec::new());
        }
        let mut stream = StreamOwned::new(ServerConnection::new(tls).unwrap(), stream);
        let protected = converse(&mut stream, false, script);
        (clear, protected)
    });
    (address, task)
}

struct Files(tempfile::TempDir);

impl Files {
    fn new(pem: &str, password_mode: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("ca.pem"), pem).unwrap();
        let password = directory.path().join("password");
        std::fs::write(&password, "open sesame\n").unwrap();
        std::fs::set_permissions(&password, std::fs::Permissions::from_mode(password_mode)).unwrap();
        Self(directory)
    }

    fn mail(&self, address: SocketAddr) -> Mail {
        Mail {
            host: "localhost".into(),
            port: address.port(),
            protection: Protection::Starttls,
            from: "Filer <filer@example.com>".into(),
            to: vec!["ann@example.com".into(), "ben@example.com".into()],
            login: Some(("filer".into(), self.0.path().join("password"))),
            authorities: Some(self.0.path().join("ca.pem")),
            delivered_within: DELIVERED_WITHIN,
        }
    }
}

#[tokio::test]
async fn a_mail_and_its_login_go_by_starttls_to_all_receivers() {
    let (pem, tls) = certificate("localhost");
    let (address, task) = server(LETS_IN, tls);
    let files = Files::new(&pem, 0o600);
    send(&files.mail(address), "[cenote] FILER is unhealthy\nNew:\n\n* disk 1 is lost\n").await.unwrap();
    let (clear, protected) = task.join().unwrap();
    assert!(clear.iter().all(|line| line.starts_with("EHLO") || line == "STARTTLS"), "{clear:?}");
    // NUL filer NUL open sesame
    for line in [
        "AUTH PLAIN AGZpbGVyAG9wZW4gc2VzYW1l",
        "RCPT TO:<ann@example.com>",
        "RCPT TO:<ben@example.com>",
        "Subject: [cenote] FILER is unhealthy",
        "Auto-Submitted: auto-generated",
        "* disk 1 is lost",
    ] {
        assert!(protected.iter().any(|got| got == line), "{line} in {protected:#?}");
    }
    assert!(protected.iter().any(|line| line.starts_with("MAIL FROM:<filer@example.com>")), "{protected:#?}");
}

#[tokio::test]
async fn a_server_without_starttls_or_of_another_name_learns_nothing() {
    let (pem, tls) = certificate("elsewhere");
    for offers in ["AUTH PLAIN", "STARTTLS"] {
        let (address, task) = server(Script { offers, ..LETS_IN }, tls.clone());
        send(&Files::new(&pem, 0o600).mail(address), "subject\ntext").await.unwrap_err();
        let (clear, protected) = task.join().unwrap();
        let is_told =
            |line: &String| line.contains("AUTH ") || line.contains("MAIL") || line.contains("ann@");
        assert!(!clear.iter().chain(&protected).any(is_told), "{offers}: {clear:?} {protected:?}");
    }
}

#[tokio::test]
async fn a_password_that_others_can_read_is_not_used() {
    let (pem, _) = certificate("localhost");
    let files = Files::new(&pem, 0o640);
    let why = send(&files.mail(SocketAddr::from(([127, 0, 0, 1], 9))), "subject").await.unwrap_err();
    assert!(why.contains("mode 640") && why.contains("chmod 600"), "{why}");
}

#[tokio::test]
async fn a_login_that_is_refused_is_told_without_the_password() {
    let (pem, tls) = certificate("localhost");
    let (address, task) = server(Script { login: "535 5.7.8 not you", ..LETS_IN }, tls);
    let files = Files::new(&pem, 0o600);
    let why = send(&files.mail(address), "subject\ntext").await.unwrap_err();
    let (_, protected) = task.join().unwrap();
    assert!(protected.iter().any(|line| line.starts_with("AUTH PLAIN")), "{protected:?}");
    assert!(!protected.iter().any(|line| line.starts_with("MAIL")), "{protected:?}");
    assert!(why.contains("not you"), "{why}");
    assert!(!why.contains("sesame") && !why.contains("AGZpbGVy"), "{why}");
    assert!(!format!("{:?}", files.mail(address)).contains("sesame"));
}

#[tokio::test]
async fn a_mail_that_was_taken_is_delivered_also_if_the_farewell_is_not_answered() {
    let (pem, _) = certificate("localhost");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let heard = converse(&mut stream, true, Script { farewell: None, ..LETS_IN });
        // It holds the connection until the client gives it up.
        while stream.read(&mut [0; 64]).is_ok_and(|bytes| bytes > 0) {}
        heard
    });
    let mail = Files::new(&pem, 0o600).mail(address);
    let mail = Mail { protection: Protection::None, login: None, ..mail };
    send(&Mail { delivered_within: Duration::from_secs(10), ..mail }, "subject\ntext").await.unwrap();
    let heard = tokio::task::spawn_blocking(|| server.join().unwrap());
    assert_eq!(heard.await.unwrap().last().unwrap(), "QUIT");
}

#[tokio::test]
async fn a_server_that_never_answers_is_left_after_its_time() {
    let (pem, _) = certificate("localhost");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let files = Files::new(&pem, 0o600);
    for protection in [Protection::Starttls, Protection::Tls] {
        let mail = files.mail(listener.local_addr().unwrap());
        let mail = Mail { protection, delivered_within: Duration::from_millis(50), ..mail };
        send(&mail, "subject\ntext").await.unwrap_err();
    }
}

#[tokio::test]
async fn a_server_that_answers_without_an_end_costs_a_bounded_memory_and_time() {
    let (pem, _) = certificate("localhost");
    let files = Files::new(&pem, 0o600);
    // A line without an end, lines without an end, and occasional single bytes.
    for (piece, pause_ms) in [(&[b'x'; 4096][..], 0), (&b"220-more\r\n"[..], 0), (&b"x"[..], 20)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mail = files.mail(listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut sent = 0;
            while stream.write_all(piece).is_ok() {
                sent += piece.len();
                std::thread::sleep(Duration::from_millis(pause_ms));
            }
            sent
        });
        let delivered_within = if pause_ms > 0 { Duration::from_millis(200) } else { mail.delivered_within };
        let why = send(&Mail { delivered_within, ..mail }, "subject\ntext").await.unwrap_err();
        assert!(why.contains("not taken within") == (pause_ms > 0), "{why}");
        // Sockets of loopback hold some megabytes beyond the bytes read.
        assert!(server.join().unwrap() < ANSWER_BYTES_MAX + (16 << 20), "{why}");
    }
}

#[tokio::test]
async fn answers_that_come_before_tls_are_not_the_proven_servers() {
    let (pem, tls) = certificate("localhost");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let task = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut line = String::new();
        stream.write_all(b"220 test\r\n").unwrap();
        BufReader::with_capacity(1, &mut stream).read_line(&mut line).unwrap();
        stream.write_all(b"250-test\r\n250 STARTTLS\r\n").unwrap();
        BufReader::with_capacity(1, &mut stream).read_line(&mut line).unwrap();
        let injected = "250-x\r\n250 AUTH PLAIN\r\n235 ok\r\n250 ok\r\n250 ok\r\n250 ok\r\n354 go\r\n250 taken\r\n221 bye\r\n";
        stream.write_all(format!("220 go\r\n{injected}").as_bytes()).unwrap();
        // It proves its name, and answers no command.
        let mut stream = StreamOwned::new(ServerConnection::new(tls).unwrap(), stream);
        while stream.read(&mut [0; 4096]).is_ok_and(|bytes| bytes > 0) {}
    });
    let files = Files::new(&pem, 0o600);
    let mail = Mail { delivered_within: Duration::from_secs(5), ..files.mail(address) };
    send(&mail, "subject\ntext").await.unwrap_err();
    task.join().unwrap();
}

#[tokio::test]
async fn a_mail_goes_by_tls_from_the_first_byte() {
    let (pem, tls) = certificate("localhost");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let task = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut stream = StreamOwned::new(ServerConnection::new(tls).unwrap(), stream);
        converse(&mut stream, true, Script { offers: "AUTH PLAIN", ..LETS_IN })
    });
    let files = Files::new(&pem, 0o600);
    send(&Mail { protection: Protection::Tls, ..files.mail(address) }, "subject\ntext").await.unwrap();
    let lines = task.join().unwrap();
    assert!(lines.iter().any(|line| line.starts_with("AUTH PLAIN")), "{lines:?}");
}

#[test]
fn a_servers_name_has_a_port_or_the_usual_one() {
    let of = |text| host_and_port(text, Protection::Starttls);
    assert_eq!(of("mail.example.com"), Ok(("mail.example.com".into(), 587)));
    assert_eq!(of("mail.example.com:25"), Ok(("mail.example.com".into(), 25)));
    assert_eq!(of("[fd00::1]:25"), Ok(("fd00::1".into(), 25)));
    assert_eq!(of("[fd00::1]"), Ok(("fd00::1".into(), 587)));
    for bad in ["", ":25", "a:b", "fd00::1", "a b", "a:0", "smtp://a:25"] {
        assert!(of(bad).is_err(), "{bad}");
    }
}
