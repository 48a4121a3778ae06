//! `cargo xtask protocols`: the code of etcd's protocol, made from `crates/etcd/proto/etcd.proto` and checked in, so that a build
//! needs no protoc. The generator is compiled for this chore only.

use std::process::ExitCode;

#[cfg(not(feature = "protocols"))]
pub fn run() -> ExitCode {
    let again = ["run", "-q", "-p", "xtask", "--features", "protocols", "--", "protocols"];
    match std::process::Command::new("cargo").args(again).status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

#[cfg(feature = "protocols")]
pub fn run() -> ExitCode {
    match generate() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("protocols: {why}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(feature = "protocols")]
fn generate() -> Result<(), Box<dyn std::error::Error>> {
    const HEADER: &str = "//! Messages and calls of etcd's API. Made by `cargo xtask protocols` from proto/etcd.proto: do not edit.\n\n";
    let made = std::path::Path::new("target/protocols");
    std::fs::create_dir_all(made)?;
    let parsed = protox::compile(["crates/etcd/proto/etcd.proto"], ["crates/etcd/proto"])?;
    tonic_prost_build::configure()
        .build_server(false)
        .build_transport(false)
        .out_dir(made)
        .compile_fds(parsed)?;
    let code = std::fs::read_to_string(made.join("etcdserverpb.rs"))?;
    std::fs::write("crates/etcd/src/protocol.rs", format!("{HEADER}{code}"))?;
    let formatted = std::process::Command::new("cargo").args(["fmt", "-p", "cenote-etcd"]).status()?;
    if formatted.success() { Ok(()) } else { Err("the code cannot be formatted".into()) }
}
