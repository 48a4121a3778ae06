//! Requests to HTTP servers: the API's at any address, and webhooks.
//!
//! Owns the choice of trusted certificates, and of a request's route. Promises: a server reached by
//! HTTPS has proved its name; every request is bounded in time; no request follows a redirect, and the
//! API's requests, which carry its token, pass no proxy.

use crate::pem::Authorities;
use std::path::Path;
use std::time::Duration;
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};

/// The receiver of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receiver {
    /// The API of a server. Its requests carry the administrator's token, so they ignore proxies in the
    /// environment.
    Api,
    /// A receiver of notices, often outside of the network: through the proxy that the daemon's environment
    /// names, if any.
    Webhook,
}

/// Makes the client of requests. `authorities`: a file in PEM form with the authorities for a server's
/// certificate, read only if `is_https`. A redirect counts as a failure: following it would send the
/// token, or a webhook's secret, to a server that the administrator did not name.
///
/// # Errors
/// Why the authorities cannot be used.
pub fn agent(
    receiver: Receiver,
    is_https: bool,
    authorities: Option<&Path>,
    time_limit: Duration,
) -> Result<Agent, String> {
    let mut builder = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .timeout_global(Some(time_limit))
        .timeout_connect(Some(Duration::from_secs(5)));
    if receiver == Receiver::Api {
        builder = builder.proxy(None);
    }
    if is_https {
        let found = match receiver {
            Receiver::Api => Authorities::given(authorities)?,
            Receiver::Webhook => Authorities::configured(authorities)?,
        };
        let certificates = found.certificates.iter().map(|der| Certificate::from_der(der).to_owned());
        let roots = RootCerts::new_with_certs(&certificates.collect::<Vec<_>>());
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .root_certs(roots)
            .unversioned_rustls_crypto_provider(crate::tls::provider())
            .build();
        builder = builder.tls_config(tls);
    }
    Ok(builder.build().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    #[test]
    fn a_pipe_for_a_webhooks_authorities_holds_nobody_up() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let made = agent(Receiver::Webhook, true, Some(&pipe), Duration::from_secs(10));
            tell.send(made.err().unwrap_or_default())
        });
        let why = told.recv_timeout(Duration::from_secs(60)).expect("it waits for nobody");
        assert!(why.contains("no regular file"), "{why}");
    }

    #[test]
    fn a_redirect_is_an_answer_and_is_not_followed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0; 4096];
            assert!(stream.read(&mut asked).unwrap() > 0);
            let answer = format!(
                "HTTP/1.1 307 Elsewhere\r\nLocation: http://{address}/stolen\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
            stream.write_all(answer.as_bytes()).unwrap();
            drop(stream);
            // A client that follows the redirect connects again.
            listener.set_nonblocking(true).unwrap();
            std::thread::sleep(Duration::from_millis(100));
            listener.accept().is_err()
        });
        let agent = agent(Receiver::Api, false, None, Duration::from_secs(10)).unwrap();
        let answer = agent.get(format!("http://{address}/api")).header("Authorization", "Bearer x").call();
        assert_eq!(answer.unwrap().status(), 307);
        assert!(server.join().unwrap(), "the token was sent on");
    }
}
