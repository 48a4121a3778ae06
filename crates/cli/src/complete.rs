//! Completion by the shell: nouns, verbs and options from the command line's definition, names of objects from the running server.
//!
//! Promises: a server that is away or slow is waited for [`TIME_LIMIT`] at most, and nothing is printed about it.

use super::args::{Cli, Global};
use api::model::{Disk, Job, OpenFile, Pool, Session, Volume};
use api::requests::{GroupView, ShareView, TokenView, UserView};
use api_client::{Client, Failure};
use clap::{Command, CommandFactory, FromArgMatches};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::Shells;
use std::time::Duration;

/// The variable by which a shell's script asks; `COMPLETE`, the usual one, may mean something else to
/// other programs.
pub const VARIABLE: &str = "CENOTE_COMPLETE";
/// Somebody has pressed a key and waits.
const TIME_LIMIT: Duration = Duration::from_millis(1500);

/// Kinds of names to ask the server for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Disk,
    Pool,
    Volume,
    Share,
    User,
    Group,
    Token,
    /// Users and groups.
    Account,
    Session,
    File,
    Job,
}

/// Returns the kind of thing that an argument names; `None`: none that the server has already. By
/// convention, the argument `name` of a noun's verb names one of the noun's, and an option that is
/// called after a noun one of those.
fn kind_of(noun: &str, verb: &str, argument: &str) -> Option<Kind> {
    Some(match (noun, verb, argument) {
        // These commands talk to other servers than this one.
        ("smb", ..) | ("rdma", "ping", _) => return None,
        (_, "create" | "add" | "import" | "inspect", "name" | "disk" | "path") => return None,
        ("user", "rename", "new_name") => return None,
        ("group", "set", "add" | "remove") | ("acl", _, "owner" | "revocations") => Kind::Account,
        ("disk", _, "disk" | "old" | "name") => Kind::Disk,
        ("pool", _, "name") => Kind::Pool,
        ("volume", _, "name") => Kind::Volume,
        ("share", _, "name") => Kind::Share,
        ("user", _, "name") => Kind::User,
        ("group", _, "name") => Kind::Group,
        ("token", _, "name") => Kind::Token,
        ("session", _, "id") => Kind::Session,
        ("file", _, "id") => Kind::File,
        ("job", _, "id") => Kind::Job,
        (_, _, "pool") => Kind::Pool,
        (_, _, "volume") => Kind::Volume,
        (_, _, "share") => Kind::Share,
        (_, _, "groups") => Kind::Group,
        _ => return None,
    })
}

/// Returns the command line, with completions for its arguments.
pub fn command() -> Command {
    let mut all = Cli::command();
    let nouns: Vec<String> = all.get_subcommands().map(|noun| noun.get_name().to_owned()).collect();
    for noun in nouns {
        all = all.mut_subcommand(&noun, |mut command| {
            let verbs: Vec<String> =
                command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
            for verb in verbs {
                command = command.mut_subcommand(&verb, |command| offering(command, &noun, &verb));
            }
            command
        });
    }
    all
}

fn offering(command: Command, noun: &str, verb: &str) -> Command {
    command.mut_args(|argument| match kind_of(noun, verb, argument.get_id().as_str()) {
        Some(kind) => argument.add(ArgValueCandidates::new(move || candidates(kind))),
        None => argument,
    })
}

/// The script that a shell reads.
///
/// # Errors
/// If it cannot be written.
pub fn script(shell: clap_complete::Shell) -> Result<Vec<u8>, Failure> {
    let shells = Shells::builtins();
    let completer = shells.completer(&shell.to_string());
    let completer = completer.ok_or_else(|| Failure::new(format!("there is no completion for {shell}")))?;
    let mut script = Vec::new();
    completer
        .write_registration(VARIABLE, "cenote", "cenote", "cenote", &mut script)
        .map_err(|error| Failure::new(error.to_string()))?;
    Ok(script)
}

fn candidates(kind: Kind) -> Vec<CompletionCandidate> {
    names(kind).unwrap_or_default().into_iter().map(|(name, what)| offer(name, what)).collect()
}

fn offer(name: String, what: String) -> CompletionCandidate {
    CompletionCandidate::new(name).help((!what.is_empty()).then(|| what.into()))
}

/// Asks the server that the words of the line name.
fn global() -> Global {
    let words = std::env::args_os().skip_while(|word| word != "--").skip(1);
    let matches = Cli::command().ignore_errors(true).try_get_matches_from(words).ok();
    matches.and_then(|matches| Global::from_arg_matches(&matches).ok()).unwrap_or_default()
}

/// Names, and a few words about each.
fn names(kind: Kind) -> Result<Vec<(String, String)>, Failure> {
    let client = Client::find_within(&global().access, TIME_LIMIT)?;
    let users = || -> Result<Vec<(String, String)>, Failure> {
        let users: Vec<UserView> = client.get("/users")?;
        Ok(users.into_iter().map(|user| (user.name, user.full_name)).collect())
    };
    let groups = || -> Result<Vec<(String, String)>, Failure> {
        let groups: Vec<GroupView> = client.get("/groups")?;
        Ok(groups.into_iter().map(|group| (group.name, "group".to_owned())).collect())
    };
    Ok(match kind {
        Kind::Disk => {
            let disks: Vec<Disk> = client.get("/disks")?;
            disks.into_iter().map(|disk| (disk.path, disk.id.to_string())).collect()
        }
        Kind::Pool => {
            client.get::<Vec<Pool>>("/pools")?.into_iter().map(|pool| (pool.name, String::new())).collect()
        }
        Kind::Volume => {
            let volumes: Vec<Volume> = client.get("/volumes")?;
            volumes.into_iter().map(|volume| (volume.name, String::new())).collect()
        }
        Kind::Share => {
            let shares: Vec<ShareView> = client.get("/shares")?;
            shares.into_iter().map(|share| (share.name, share.comment)).collect()
        }
        Kind::User => users()?,
        Kind::Group => groups()?,
        Kind::Token => {
            let tokens: Vec<TokenView> = client.get("/tokens")?;
            tokens.into_iter().map(|token| (token.name, token.role.to_string())).collect()
        }
        Kind::Account => [users()?, groups()?].concat(),
        Kind::Session => {
            let sessions: Vec<Session> = client.get("/sessions")?;
            sessions.into_iter().map(|session| (session.id.to_string(), session.user)).collect()
        }
        Kind::File => {
            let files: Vec<OpenFile> = client.get("/files")?;
            files.into_iter().map(|file| (file.id.to_string(), file.path)).collect()
        }
        Kind::Job => {
            let jobs: Vec<Job> = client.get("/jobs")?;
            jobs.into_iter().map(|job| (job.id.to_string(), job.target)).collect()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_that_name_an_object_of_the_server_offer_those_there_are() {
        for (noun, verb, argument, kind) in [
            ("share", "delete", "name", Some(Kind::Share)),
            ("share", "create", "name", None),
            ("share", "create", "volume", Some(Kind::Volume)),
            ("volume", "create", "pool", Some(Kind::Pool)),
            ("user", "add", "groups", Some(Kind::Group)),
            ("user", "rename", "name", Some(Kind::User)),
            ("user", "rename", "new_name", None),
            ("group", "set", "add", Some(Kind::Account)),
            ("disk", "replace", "old", Some(Kind::Disk)),
            ("disk", "add", "path", None),
            ("acl", "show", "share", Some(Kind::Share)),
            ("job", "watch", "id", Some(Kind::Job)),
            ("rdma", "ping", "share", None),
        ] {
            assert_eq!(kind_of(noun, verb, argument), kind, "{noun} {verb} {argument}");
            let command = Cli::command();
            let verb = command.find_subcommand(noun).unwrap().find_subcommand(verb).unwrap();
            assert!(verb.get_arguments().any(|one| one.get_id() == argument), "{noun} has no {argument}");
        }
    }

    #[test]
    fn there_is_a_script_for_each_shell() {
        for shell in <clap_complete::Shell as clap::ValueEnum>::value_variants() {
            let script = String::from_utf8(script(*shell).unwrap()).unwrap();
            assert!(script.contains(VARIABLE) && script.contains("cenote"), "{shell}: {script}");
        }
    }
}
