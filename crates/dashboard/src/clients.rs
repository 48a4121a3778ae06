//! Sessions of clients, and why one is not on RDMA.

use crate::activity::Servers;
use api::model::{Rdma, RdmaInterface, Session};
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// Sessions that are shown; the others are counted.
pub const SESSIONS_MAX: usize = 200;

#[derive(Debug, Serialize)]
pub struct SessionLine<'a> {
    #[serde(flatten)]
    session: &'a Session,
    /// `None`: the session's server does not report it.
    pub read_bytes_per_s: Option<f64>,
    pub written_bytes_per_s: Option<f64>,
    /// Moved over its channels by RDMA and in messages of SMB Direct, since they began.
    pub rdma_bytes: u64,
    /// `None`: it is on RDMA.
    pub why_not_rdma: Option<String>,
}

/// Keeps one server's part of all servers' RDMA; `None`: this is a single server.
fn of_server(rdma: &Rdma, server: Option<&str>) -> Rdma {
    let mut own = rdma.clone();
    let is_there = |node: &Option<String>| server.is_none() || node.is_none() || node.as_deref() == server;
    own.interfaces.retain(|interface| is_there(&interface.node));
    own.state.listeners.retain(|listener| is_there(&listener.node));
    own
}

/// Lists at most [`SESSIONS_MAX`] sessions, those with the most bytes first. `own`: this server;
/// `activity`: of all in the last second.
pub fn lines<'a>(
    sessions: &'a [Session],
    own: &str,
    rdma: &Rdma,
    activity: &Servers,
) -> Vec<SessionLine<'a>> {
    let mut servers: BTreeMap<Option<&str>, Rdma> = BTreeMap::new();
    let mut rates: BTreeMap<(&str, u64), [f64; 4]> = BTreeMap::new();
    for session in sessions {
        let server = session.server.as_deref();
        servers.entry(server).or_insert_with(|| of_server(rdma, server));
    }
    let interval_s = activity.interval_s();
    for server in servers.keys().map(|server| server.unwrap_or(own)) {
        let told = activity.of(server).into_iter().flat_map(|(_, told)| &told.sessions);
        rates.extend(told.map(|one| ((server, one.id), one.counts.map(|count| count as f64 / interval_s))));
    }
    let line = |session: &'a Session| {
        let server = session.server.as_deref().unwrap_or(own);
        // Sessions without traffic are not reported.
        let rate = |kind: usize| {
            activity.of(server).map(|_| rates.get(&(server, session.id)).map_or(0.0, |rates| rates[kind]))
        };
        let (read_bytes_per_s, written_bytes_per_s) = (rate(2), rate(3));
        SessionLine {
            session,
            read_bytes_per_s,
            written_bytes_per_s,
            rdma_bytes: rdma_bytes(session),
            why_not_rdma: why_not(session, &servers[&session.server.as_deref()]),
        }
    };
    let mut lines: Vec<SessionLine<'a>> = sessions.iter().map(line).collect();
    let moved = |line: &SessionLine<'_>| {
        line.read_bytes_per_s.unwrap_or_default() + line.written_bytes_per_s.unwrap_or_default()
    };
    lines.sort_by(|a, b| moved(b).total_cmp(&moved(a)).then(a.session.id.cmp(&b.session.id)));
    lines.truncate(SESSIONS_MAX);
    lines
}

fn rdma_bytes(session: &Session) -> u64 {
    let channels = session.channels.iter().filter_map(|channel| channel.rdma.as_ref());
    channels
        .map(|rdma| {
            let counters = &rdma.counters;
            [
                counters.bytes_rdma_read,
                counters.bytes_rdma_written,
                counters.bytes_received,
                counters.bytes_sent,
            ]
            .into_iter()
            .fold(0, u64::saturating_add)
        })
        .fold(0, u64::saturating_add)
}

pub fn is_on_rdma(session: &Session) -> bool {
    session.channels.iter().any(|channel| channel.transport != "TCP")
}

/// Explains why all channels of a session are TCP, and what would change that.
pub fn why_not(session: &Session, rdma: &Rdma) -> Option<String> {
    if is_on_rdma(session) {
        return None;
    }
    if rdma.state.listeners.is_empty() {
        let reason = match rdma.no_devices.as_str() {
            "" => "set smb.rdma_listen",
            reason => reason,
        };
        return Some(format!("its server serves no SMB Direct: {reason}"));
    }
    let address = session.channels.first().and_then(|channel| channel.server.parse::<SocketAddr>().ok());
    let interface = address.and_then(|address| interface_of(address.ip(), rdma));
    Some(match interface {
        Some(interface) if !interface.capable => {
            format!("it came by {}, which has no RDMA: {}", interface.name, interface.reason)
        }
        Some(interface) => format!(
            "it came by {}, which has SMB Direct, and did not ask for it: Windows needs an RDMA adapter there that is enabled \
             (Get-SmbClientNetworkInterface), Linux the mount option `rdma`",
            interface.name
        ),
        None => {
            let listener = rdma.state.listeners.first().map_or("", |listener| listener.address.as_str());
            format!("it came by an address without SMB Direct; that is served at {listener}")
        }
    })
}

fn interface_of(address: IpAddr, rdma: &Rdma) -> Option<&RdmaInterface> {
    let text = address.to_string();
    rdma.interfaces.iter().find(|interface| {
        let own = interface.addresses.iter();
        own.map(|own| own.split('/').next().unwrap_or_default()).any(|own| own == text)
    })
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use api::activity::{Activity, SessionActivity};
    use api::model::{Channel, RdmaListener};
    use api::seconds::ServerActivity;

    pub fn session(transport: &str) -> Session {
        let channel = Channel {
            client: "10.0.0.9:50000".into(),
            server: "10.0.0.1:445".into(),
            transport: transport.into(),
            zero_copy: None,
            rdma: None,
        };
        Session {
            server: None,
            id: 1,
            client: vec![channel.client.clone()],
            user: "ann".into(),
            user_sid: None,
            dialect: "3.1.1".into(),
            transport: transport.into(),
            channels: vec![channel],
            signing: String::new(),
            encryption: String::new(),
            shares: vec!["data".into()],
            opens: 0,
            since_unix_s: 0,
            idle_s: 0,
            reads: 0,
            writes: 0,
            read_bytes: 0,
            written_bytes: 0,
        }
    }

    fn rdma(capable: bool) -> Rdma {
        let mut rdma = Rdma::default();
        rdma.interfaces.push(RdmaInterface {
            node: None,
            name: "eth0".into(),
            addresses: vec!["10.0.0.1/24".into()],
            speed_bits_s: None,
            capable,
            reason: "it is too slow".into(),
        });
        let listener = RdmaListener {
            node: None,
            address: "10.0.0.1:5445".into(),
            transport: "iWARP".into(),
            provider: "software".into(),
        };
        rdma.state.listeners.push(listener);
        rdma
    }

    #[test]
    fn of_a_session_at_another_server_no_rate_is_made_up_and_that_servers_listeners_count() {
        let mut rdma = rdma(true);
        rdma.interfaces[0].node = Some("node-1".into());
        rdma.state.listeners[0].node = Some("node-1".into());
        let there = Session { server: Some("node-2".into()), ..session("TCP") };
        let here = Session { server: Some("node-1".into()), ..session("TCP") };
        let mut activity = Servers::default();
        let mut told = ServerActivity { activity: Some(Activity::default()), ..ServerActivity::default() };
        (told.second.before.uptime_us, told.second.after.uptime_us) = (1_000_000, 3_000_000);
        let counts = [0, 0, 20, 40];
        told.activity.as_mut().unwrap().sessions.push(SessionActivity { id: here.id, counts });
        activity.0.insert("node-1".into(), told);
        let sessions = [there, here];
        let lines = lines(&sessions, "node-3", &rdma, &activity);
        let line =
            |server: &str| lines.iter().find(|line| line.session.server.as_deref() == Some(server)).unwrap();
        assert_eq!(line("node-1").written_bytes_per_s, Some(20.0), "of its own number at that server");
        assert!(line("node-2").read_bytes_per_s.is_none());
        let why = |server| line(server).why_not_rdma.clone().unwrap();
        assert!(
            why("node-1").contains("did not ask for it") && why("node-2").contains("serves no SMB Direct")
        );
    }

    #[test]
    fn a_client_by_tcp_is_told_why() {
        let of = |rdma: &Rdma| why_not(&session("TCP"), rdma).unwrap();
        assert!(of(&Rdma::default()).contains("smb.rdma_listen"));
        assert!(of(&rdma(false)).contains("eth0, which has no RDMA: it is too slow"));
        assert!(of(&rdma(true)).contains("did not ask for it"));
        let mut elsewhere = rdma(true);
        elsewhere.interfaces.clear();
        assert!(of(&elsewhere).contains("10.0.0.1:5445"));
        assert_eq!(why_not(&session("iWARP"), &rdma(true)), None);
    }
}
