//! `cenote rdma`: am I on RDMA, and if not, why.

use crate::accounts::Asked;
use crate::activity::at_its_server;
use crate::args;
use crate::output::{Align, Column, json, pairs, table};
use crate::printable::println;
use api::model::{CounterKind, Rdma, RdmaConnection, RdmaTrace};
use api::printed::{RdmaCounterSets, RdmaPing};
use api_client::{Client, Failure};
use owo_colors::OwoColorize;
use smb_client::{Credentials, NtHash, bandwidth, ping};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use types::size::show_size;

const MISSING: &str = "its interfaces, connections and counters are missing";

pub fn rdma(client: &Client, as_json: bool, command: args::Rdma) -> Result<(), Failure> {
    match command {
        args::Rdma::List => list(&client.get_of_all("/rdma", MISSING)?, as_json),
        args::Rdma::Trace { connection } => {
            let all: Rdma = client.get("/rdma")?;
            let there = all.state.connections.iter().filter(|known| known.rdma.connection == connection);
            let servers = there.map(|known| known.node.clone()).collect();
            trace(&client.get(&at_its_server("rdma/connections", connection, "/trace", servers)?)?, as_json)
        }
        args::Rdma::Counters { seconds } => counters(client, as_json, Duration::from_secs(seconds)),
        // A ping asks the other server, and not ours.
        args::Rdma::Ping(options) => ping(options, as_json),
    }
}

fn list(shown: &Rdma, as_json: bool) -> Result<(), Failure> {
    if as_json {
        return json(shown);
    }
    println!("{}", "Interfaces".bold());
    let columns = [
        Column("NODE", Align::Left),
        Column("NAME", Align::Left),
        Column("ADDRESSES", Align::Left),
        Column("SPEED", Align::Right),
        Column("RDMA", Align::Left),
        Column("WHY NOT", Align::Left),
    ];
    let rows = shown.interfaces.iter().map(|interface| {
        vec![
            or_dash(&interface.node),
            interface.name.clone(),
            interface.addresses.join(", "),
            interface.speed_bits_s.map(|bits| format!("{} Mbit/s", bits / 1_000_000)).unwrap_or_default(),
            if interface.capable { "capable".into() } else { "no".into() },
            interface.reason.clone(),
        ]
    });
    table(&columns, rows.collect(), "no interfaces");
    println!("\n{}", "Listeners".bold());
    let columns = [
        Column("NODE", Align::Left),
        Column("ADDRESS", Align::Left),
        Column("TRANSPORT", Align::Left),
        Column("PROVIDER", Align::Left),
    ];
    let rows = shown.state.listeners.iter().map(|listener| {
        vec![
            or_dash(&listener.node),
            listener.address.clone(),
            listener.transport.clone(),
            listener.provider.clone(),
        ]
    });
    table(&columns, rows.collect(), "none: name an address in smb.rdma_listen");
    println!("\n{}", "Devices".bold());
    let columns = [
        Column("NODE", Align::Left),
        Column("NAME", Align::Left),
        Column("TRANSPORT", Align::Left),
        Column("STATE", Align::Left),
        Column("INTERFACE", Align::Left),
        Column("ADDRESSES", Align::Left),
        Column("USED", Align::Left),
        Column("WHY NOT", Align::Left),
    ];
    let rows = shown.devices.iter().map(|device| {
        vec![
            or_dash(&device.node),
            device.name.clone(),
            device.transport.clone(),
            device.state.clone(),
            device.interface.clone().unwrap_or_default(),
            device.addresses.join(", "),
            if device.used { "yes".into() } else { "no".into() },
            device.reason.clone(),
        ]
    });
    let none = if shown.no_devices.is_empty() { "none" } else { &shown.no_devices };
    table(&columns, rows.collect(), &format!("{none}; iWARP is spoken in software without one"));
    println!("\n{}", "Connections".bold());
    connections(&shown.state.connections);
    Ok(())
}

/// The server of a cluster; a single server has no name here.
fn or_dash(node: &Option<String>) -> String {
    node.clone().unwrap_or_else(|| "-".into())
}

fn connections(connections: &[RdmaConnection]) {
    let columns = [
        Column("NODE", Align::Left),
        Column("ID", Align::Right),
        Column("CLIENT", Align::Left),
        Column("SERVER", Align::Left),
        Column("TRANSPORT", Align::Left),
        Column("CRC", Align::Left),
        Column("IRD/ORD", Align::Right),
        Column("CREDITS", Align::Right),
        Column("BY RDMA WRITE", Align::Right),
        Column("BY RDMA READ", Align::Right),
        Column("INLINE", Align::Right),
        Column("STALLS", Align::Right),
    ];
    let rows = connections.iter().map(|connection| {
        let rdma = &connection.rdma;
        let counters = &rdma.counters;
        vec![
            or_dash(&connection.node),
            rdma.connection.to_string(),
            connection.client.clone(),
            connection.server.clone(),
            connection.transport.clone(),
            if rdma.crc { "on".into() } else { "off".into() },
            format!("{}/{}", rdma.inbound_read_depth, rdma.outbound_read_depth),
            format!("{}/{}", rdma.send_credits, rdma.receive_credits),
            show_size(counters.bytes_rdma_written),
            show_size(counters.bytes_rdma_read),
            show_size(counters.bytes_sent + counters.bytes_received),
            (counters.stalls_send_credit + counters.stalls_rdma_read + counters.stalls_rdma_registrations)
                .to_string(),
        ]
    });
    table(&columns, rows.collect(), "no connections");
}

fn trace(trace: &RdmaTrace, as_json: bool) -> Result<(), Failure> {
    if as_json {
        return json(trace);
    }
    println!(
        "connection {}: the last {} of {} events; times before the newest; send/receive credits after it",
        trace.connection,
        trace.events.len(),
        trace.count
    );
    for event in &trace.events {
        println!(
            "{:>14.6} s  {:>3}/{:<3}  {}",
            -(event.before_newest_us as f64) / 1e6,
            event.send_credits,
            event.receive_credits,
            event.event
        );
    }
    Ok(())
}

fn counters(client: &Client, as_json: bool, interval: Duration) -> Result<(), Failure> {
    let before: Rdma = client.get_of_all("/rdma", MISSING)?;
    if as_json {
        return json(&RdmaCounterSets {
            smb_direct_connection: before.state.counters,
            rdma_activity: before.state.activity,
        });
    }
    let began = Instant::now();
    std::thread::sleep(interval);
    let after: Rdma = client.get_of_all("/rdma", MISSING)?;
    let seconds = began.elapsed().as_secs_f64();
    let columns =
        [Column("COUNTER", Align::Left), Column("VALUE", Align::Right), Column("SINCE START", Align::Right)];
    let sets = [
        (
            "SMB Direct Connection",
            before.state.counters.named().collect::<Vec<_>>(),
            after.state.counters.named().collect::<Vec<_>>(),
        ),
        ("RDMA Activity", before.state.activity.named().collect(), after.state.activity.named().collect()),
    ];
    for (set, before, after) in sets {
        println!("{}", set.bold());
        let rows = before.iter().zip(&after).map(|(&(_, _, _, was), &(windows, _, kind, is))| match kind {
            CounterKind::Rate => {
                let rate = is.saturating_sub(was) as f64 / seconds;
                vec![windows.to_owned(), format!("{rate:.0}"), is.to_string()]
            }
            CounterKind::Total => vec![windows.to_owned(), is.to_string(), is.to_string()],
            CounterKind::Level => vec![windows.to_owned(), is.to_string(), String::new()],
        });
        table(&columns, rows.collect(), "");
        println!();
    }
    Ok(())
}

pub fn ping(options: args::RdmaPing, as_json: bool) -> Result<(), Failure> {
    let report = ping::ping(&ping::Settings {
        host: options.host.clone(),
        count: options.count,
        step_timeout: Duration::from_secs(options.timeout),
        crc: !options.no_crc,
    })
    .map_err(|error| Failure::new(error.to_string()))?;
    let measured = measure(options, report.server)?;
    if as_json {
        let value = |found: Result<serde_json::Value, serde_json::Error>| {
            found.map_err(|error| Failure::new(error.to_string()))
        };
        return json(&RdmaPing {
            path: value(serde_json::to_value(&report))?,
            bandwidth: measured.map(|found| value(serde_json::to_value(found))).transpose()?,
        });
    }
    show_path(&report);
    if let Some(measured) = measured {
        show_bandwidth(&measured);
    }
    Ok(())
}

/// Measures reading and writing on a share, if one was named.
fn measure(options: args::RdmaPing, server: SocketAddr) -> Result<Option<bandwidth::Bandwidth>, Failure> {
    let (Some(share), Some(user)) = (options.share, options.user) else { return Ok(None) };
    let password = super::accounts::read_password(options.password, Asked::Once)?
        .ok_or_else(|| Failure::new("give the password with --password or --password-stdin"))?;
    let (domain, user) = user.split_once('\\').unwrap_or(("", &user));
    let credentials = Credentials::User {
        user: user.to_owned(),
        domain: domain.to_owned(),
        workstation: String::new(),
        hash: NtHash::from_password(&password),
        target_name: format!("cifs/{}", server.ip()),
    };
    let (address, bytes) = (server.ip().to_string(), options.mib << 20);
    let measured = bandwidth::measure(&address, server.port(), &share, credentials, bytes, !options.no_crc);
    measured.map(Some).map_err(|error| {
        Failure::new(format!(
            "{server} is on RDMA, but nothing could be measured on share '{share}': {error}"
        ))
    })
}

/// Shows how the server is reached, and how long messages take.
fn show_path(report: &ping::Report) {
    println!("{} {}", report.server, "is on RDMA".bold());
    let time = |us: f64| format!("{:.3} ms", us / 1000.0);
    pairs(&[
        ("transport", format!("{} (CRC {})", report.transport, if report.crc { "on" } else { "off" })),
        ("read depths", format!("IRD {}, ORD {}", report.inbound_read_depth, report.outbound_read_depth)),
        ("TCP connection", time(report.connect_tcp_us)),
        ("RDMA connection", time(report.connect_rdma_us)),
        (
            "SMB Direct negotiation",
            format!("{} (20 ms of it are held back for Linux's siw)", time(report.negotiate_smb_direct_us)),
        ),
        ("SMB2 negotiation", time(report.negotiate_smb2_us)),
        (
            "SMB Direct",
            format!(
                "send {}, receive {}, RDMA {} at most; {} send credits",
                show_size(u64::from(report.send_bytes_max)),
                show_size(u64::from(report.receive_bytes_max)),
                show_size(u64::from(report.read_write_bytes_max)),
                report.send_credits
            ),
        ),
        (
            "SMB2",
            format!(
                "dialect {}, READ {}, WRITE {} at most",
                report.dialect,
                show_size(u64::from(report.smb2_read_bytes_max)),
                show_size(u64::from(report.smb2_write_bytes_max))
            ),
        ),
    ]);
    let columns = [
        Column("ROUND TRIP", Align::Left),
        Column("COUNT", Align::Right),
        Column("MIN us", Align::Right),
        Column("MEDIAN us", Align::Right),
        Column("P99 us", Align::Right),
        Column("MAX us", Align::Right),
    ];
    let rows = report.round_trips.iter().map(|times| {
        vec![
            format!("{} B message", times.message_bytes),
            times.count.to_string(),
            format!("{:.1}", times.min_us),
            format!("{:.1}", times.median_us),
            format!("{:.1}", times.p99_us),
            format!("{:.1}", times.max_us),
        ]
    });
    table(&columns, rows.collect(), "");
}

/// Shows the rates of reading and writing.
fn show_bandwidth(measured: &bandwidth::Bandwidth) {
    let rate = |bytes_s: f64| format!("{:.1} MB/s", bytes_s / 1e6);
    pairs(&[
        (
            "written",
            format!(
                "{} at {}, {} of it by RDMA Read",
                show_size(measured.bytes),
                rate(measured.write_bytes_s),
                show_size(measured.written_by_rdma_bytes)
            ),
        ),
        (
            "read",
            format!(
                "{} at {}, {} of it by RDMA Write; as it was written",
                show_size(measured.bytes),
                rate(measured.read_bytes_s),
                show_size(measured.read_by_rdma_bytes)
            ),
        ),
    ]);
    if let Some(note) = &measured.note {
        println!("{note}");
    }
}
