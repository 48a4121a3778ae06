//! `cenote dashboard`: the link to the server's pages, and a browser that shows them.
//!
//! Promises: the token goes to standard output and to a file that only this user can read, and never onto the command line of another program,
//! which everybody on the machine could see.

use crate::args;
use crate::output::{json, say};
use api::model::HealthReport;
use api::printed::DashboardLink;
use api_client::{Client, Failure};
use std::env;
use std::fs::OpenOptions;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A browser that was started has read the file by then.
const READ_WITHIN: Duration = Duration::from_secs(5);

pub fn dashboard(client: &Client, as_json: bool, options: &args::Dashboard) -> Result<(), Failure> {
    // A link that does not lead anywhere is of no use.
    let _: HealthReport = client.get("/health")?;
    let url = client.page("/#token=");
    let browser = if options.no_open || as_json { None } else { browser() };
    if as_json {
        return json(&DashboardLink { url });
    }
    say(false, url.clone())?;
    if let Some(browser) = browser
        && let Err(error) = open(&browser, &url)
    {
        crate::printable::eprintln!("cenote: {} was not started: {error}", browser.display());
    }
    Ok(())
}

/// Finds the program that opens a page on this desktop, if there is one and somebody sits there.
fn browser() -> Option<PathBuf> {
    let has_desktop = ["DISPLAY", "WAYLAND_DISPLAY"].into_iter().any(|name| env::var_os(name).is_some());
    if !has_desktop || !io::stdout().is_terminal() {
        return None;
    }
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders).map(|folder| folder.join("xdg-open")).find(|program| program.is_file())
}

/// Opens a page that leads to the link.
fn open(browser: &Path, url: &str) -> io::Result<()> {
    let folder = env::var_os("XDG_RUNTIME_DIR").map_or_else(env::temp_dir, PathBuf::from);
    let path = folder.join(format!("cenote-dashboard-{}.html", std::process::id()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    file.write_all(leading_to(url).as_bytes())?;
    let quiet = || Stdio::null();
    let started = Command::new(browser).arg(&path).stdin(quiet()).stdout(quiet()).stderr(quiet()).spawn();
    if started.is_ok() {
        std::thread::sleep(READ_WITHIN);
    }
    std::fs::remove_file(&path)?;
    started.map(drop)
}

/// `url` has no letters that mean something in HTML: an address, and a token of digits.
fn leading_to(url: &str) -> String {
    format!(
        "<!doctype html><meta charset=\"utf-8\"><meta name=\"referrer\" content=\"no-referrer\">\
         <meta http-equiv=\"refresh\" content=\"0;url={url}\"><title>Cenote</title>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_browser_gets_a_file_that_nobody_else_can_read_and_that_is_gone_afterwards() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("browser");
        // The script keeps its arguments, and the file that it read.
        let script =
            "#!/bin/sh\nstat -c %a \"$1\" >\"$0.mode\"\ncp \"$1\" \"$0.read\"\necho \"$@\" >\"$0.words\"\n";
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        open(&program, "http://127.0.0.1:9445/#token=0123").unwrap();
        let kept = |name: &str| std::fs::read_to_string(program.with_extension(name)).unwrap();
        assert_eq!(kept("mode").trim(), "600");
        assert!(kept("read").contains("url=http://127.0.0.1:9445/#token=0123"));
        assert!(!kept("words").contains("0123"));
        assert!(!Path::new(kept("words").trim()).exists());
    }
}
