//! The session of the file commands: its server and its user.

use super::Failure;
use crate::args::{SmbOptions, SmbTransport};
use smb_client::{
    Client, Encryption, Location, LocationError, Logon, Options, RDMA_PORT, RdmaDevice, Signing, Transport,
};
use std::time::Duration;

const TCP_PORT: u16 = 445;
/// Time for which a lost session is set up anew.
const RECONNECT: Duration = Duration::from_secs(30);

/// How a place is written.
const FORM: &str = "//SERVER/SHARE/PATH or smb://[USER@]SERVER[,SERVER...][:PORT]/SHARE/PATH";

/// Parses the place in an argument.
///
/// # Errors
/// The reason why it does not parse, and the right form.
pub fn location(text: &str) -> Result<Location, Failure> {
    Location::parse(text).map_err(|problem| match problem {
        // The address is not repeated: it holds the password.
        LocationError::Password => Failure::new(format!(
            "{problem}: write {FORM}, and give the password in a file with --credentials FILE, or in CENOTE_SMB_PASSWORD"
        )),
        problem => Failure::new(format!("'{text}' is not a path on a server ({problem}): write {FORM}")),
    })
}

/// Opens a session at the place's server.
///
/// # Errors
/// The reason why there is none, and the remedy.
pub fn connect(place: &Location, how: &SmbOptions) -> Result<Client, Failure> {
    let logon = match &how.credentials {
        Some(path) => Logon::read(path).map_err(|error| Failure::new(error.to_string()))?,
        None => Logon::from_environment("CENOTE_SMB"),
    };
    let credentials = logon.credentials(place.user.as_deref(), &place.server).ok_or_else(|| {
        Failure::new(
            "no user to log on as: give --credentials FILE (lines username= and password=), or set CENOTE_SMB_USER and \
             CENOTE_SMB_PASSWORD",
        )
    })?;
    let asked = how.transport.unwrap_or(SmbTransport::Auto);
    let (transport, port) = way(asked, place.port, how.rdma_port);
    let usually = Options::default();
    let options = Options {
        transport,
        rdma_read_bytes_min: how.rdma_read_min.unwrap_or(usually.rdma_read_bytes_min),
        rdma_write_bytes_min: how.rdma_write_min.unwrap_or(usually.rdma_write_bytes_min),
        rdma_port: how.rdma_port.unwrap_or(RDMA_PORT),
        rdma_device: how.rdma_device.as_deref().map_or(RdmaDevice::Software, RdmaDevice::from),
        rdma_crc: !how.rdma_no_crc,
        channels: how.channels,
        multichannel: how.multichannel,
        signing: if how.sign { Signing::Required } else { Signing::IfRequired },
        encryption: if how.seal { Encryption::Required } else { Encryption::IfRequired },
        reconnect: RECONNECT,
        others: place.others.clone(),
        credits: smb_client::transfer::CREDITS,
        ..usually
    };
    Client::connect(&place.server, port, credentials, options)
        .map_err(|error| Failure::new(format!("{}, port {port}: {error}", place.server)))
}

/// The transport and its port. A server at a port of its own is one of several on its host: nobody
/// knows whose SMB Direct listens at the usual port there, so only a given port is tried.
fn way(transport: SmbTransport, port: Option<u16>, rdma_port: Option<u16>) -> (Transport, u16) {
    let is_usual = port.is_none_or(|port| port == TCP_PORT);
    match transport {
        SmbTransport::Auto if is_usual || rdma_port.is_some() => (Transport::Auto, port.unwrap_or(TCP_PORT)),
        SmbTransport::Auto | SmbTransport::Tcp => (Transport::Tcp, port.unwrap_or(TCP_PORT)),
        SmbTransport::Rdma => (Transport::Rdma, rdma_port.or(port).unwrap_or(RDMA_PORT)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_at_a_port_of_its_own_is_not_looked_for_at_the_usual_port_of_smb_direct() {
        let auto = |port, rdma_port| way(SmbTransport::Auto, port, rdma_port);
        assert_eq!(auto(Some(4456), None), (Transport::Tcp, 4456));
        assert_eq!(auto(Some(4456), Some(5999)), (Transport::Auto, 4456));
        assert_eq!(auto(None, None), (Transport::Auto, 445));
        assert_eq!(auto(Some(445), None), (Transport::Auto, 445));
        assert_eq!(way(SmbTransport::Rdma, Some(5999), None), (Transport::Rdma, 5999));
    }
}
