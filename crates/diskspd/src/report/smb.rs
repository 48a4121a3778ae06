//! The report's block for SMB targets, after DiskSpd's own blocks: how they were reached, and the cost of that.

use crate::statistics::SmbUse;
use crate::statistics::SpanResult;
use std::fmt::Write;

/// The block of one time span; nothing without SMB sessions.
pub fn block(out: &mut String, result: &SpanResult) {
    if result.smb_sessions.is_empty() {
        return;
    }
    out.push_str("\n\nSMB:\n");
    for (session, count) in kinds(&result.smb_sessions) {
        let _ = writeln!(out, "\tserver:\t\t\t{}", session.server);
        let _ = writeln!(out, "\ttransport:\t\t{}", transport(session));
        if let Some(reason) = &session.fallback {
            let _ = writeln!(out, "\tno SMB Direct:\t\t{reason}");
        }
        let _ = writeln!(out, "\tdialect:\t\t{}", session.dialect);
        let _ = writeln!(out, "\tsessions:\t\t{count}");
        let _ = writeln!(out, "\tchannels per session:\t{}", session.channels);
        let _ = writeln!(out, "\tsigning:\t\t{}", if session.is_signed { "on" } else { "off" });
        let _ = writeln!(out, "\tencryption:\t\t{}", session.cipher.as_deref().unwrap_or("off"));
        out.push_str("\tclient cache:\t\tnone\n");
    }
    let sum = |value: fn(&SmbUse) -> u64| result.smb_sessions.iter().map(value).sum::<u64>();
    let operations: u64 =
        result.threads.iter().flatten().map(|target| target.read.operations + target.write.operations).sum();
    let cpu_us = result.process_cpu_ns as f64 / 1e3;
    let _ = writeln!(
        out,
        "\tclient CPU:\t\t{:.2} us per I/O, {:.2}% of one processor",
        if operations > 0 { cpu_us / operations as f64 } else { 0.0 },
        if result.seconds > 0.0 { cpu_us / 1e4 / result.seconds } else { 0.0 },
    );
    let _ = writeln!(
        out,
        "\tbytes by RDMA:\t\tread {}, written {}",
        sum(|session| session.counters.rdma_read_bytes),
        sum(|session| session.counters.rdma_written_bytes)
    );
    let _ = writeln!(
        out,
        "\tbytes in messages:\treceived {}, sent {}",
        sum(|session| session.counters.received_bytes),
        sum(|session| session.counters.sent_bytes)
    );
    let _ = writeln!(
        out,
        "\tcredit stalls:\t\tSMB2 {}, SMB Direct {}",
        sum(|session| session.counters.smb_credit_stalls),
        sum(|session| session.counters.rdma_credit_stalls)
    );
    let _ = writeln!(
        out,
        "\tlost connections:\t{}, requests repeated {}",
        sum(|session| session.counters.channels_lost),
        sum(|session| session.counters.requests_repeated)
    );
}

pub(super) fn transport(session: &SmbUse) -> &'static str {
    if session.is_rdma { "SMB Direct" } else { "TCP" }
}

/// Sessions that are alike, and how many.
pub(super) fn kinds(sessions: &[SmbUse]) -> Vec<(&SmbUse, usize)> {
    let is_alike = |one: &SmbUse, other: &SmbUse| {
        (&one.server, one.is_rdma, &one.dialect, one.channels, one.is_signed, &one.cipher)
            == (&other.server, other.is_rdma, &other.dialect, other.channels, other.is_signed, &other.cipher)
    };
    let mut found: Vec<(&SmbUse, usize)> = Vec::new();
    for session in sessions {
        match found.iter_mut().find(|(known, _)| is_alike(known, session)) {
            Some((_, count)) => *count += 1,
            None => found.push((session, 1)),
        }
    }
    found
}
