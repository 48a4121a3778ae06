//! `cenote share`, `cenote user`, `cenote group`, `cenote acl`.

use crate::args;
use crate::jobs::{fail_if_one_failed, wait, watch};
use crate::output::{Align, Column, confirm, json, pairs, say, show_utc, table, word};
use crate::printable::{eprintln, println};
use api::printed::AddedUser;
use api::requests::{
    AclChanged, AclEntry, AclView, AddGroup, AddUser, Below, CreateShare, Grant, GroupView, Inheritance,
    SetAcl, SetGroup, SetUser, ShareOptions, ShareView, UserView,
};
use api_client::{Client, Failure, escaped};
use records::accounts::generated_password;
use records::shares::{ShareAccess, ShareDurability};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{IsTerminal, Read};

pub fn share(client: &Client, as_json: bool, command: args::Share) -> Result<(), Failure> {
    match command {
        args::Share::List => {
            let shares: Vec<ShareView> = client.get("/shares")?;
            if as_json {
                return json(&shares);
            }
            let columns = [
                Column("NAME", Align::Left),
                Column("VOLUME", Align::Left),
                Column("PATH", Align::Left),
                Column("ACCESS", Align::Left),
                Column("DURABILITY", Align::Left),
                Column("OPTIONS", Align::Left),
                Column("COMMENT", Align::Left),
            ];
            table(
                &columns,
                shares.iter().map(|share| share_row(share).to_vec()).collect(),
                "no shares; `cenote share create NAME --volume VOLUME` makes one",
            );
        }
        args::Share::Show { name } => {
            let share: ShareView = client.get(&format!("/shares/{}", escaped(&name)))?;
            if as_json {
                return json(&share);
            }
            show_share(&share);
        }
        args::Share::Create { name, volume, path, options } => {
            let options = share_options(options)?;
            client.post::<()>("/shares", &CreateShare { name: name.clone(), volume, path, options })?;
            made::<ShareView>(client, as_json, "shares", &name, || format!("share '{name}' was made"))?;
            tell_if_nobody_has_access(client, &name)?;
            for note in ways_around(&client.get::<Vec<ShareView>>("/shares")?, &name) {
                eprintln!("cenote: {note}");
            }
        }
        args::Share::Set { name, options } => {
            let options = share_options(options)?;
            if options == ShareOptions::default() {
                return Err(Failure::new(
                    "nothing to change: give --grant, --comment or another option; `cenote share set --help` lists them",
                ));
            }
            let () = client.patch(&format!("/shares/{}", escaped(&name)), &options)?;
            made::<ShareView>(client, as_json, "shares", &name, || format!("share '{name}' was changed"))?;
        }
        args::Share::Delete { name, confirmation } => {
            let what = format!("this deletes share '{name}'; its files stay on the volume");
            delete(client, "shares", &what, &name, &confirmation)?;
            say(as_json, format!("share '{name}' is gone"))?;
        }
    }
    Ok(())
}

fn show_share(share: &ShareView) {
    let [name, volume, path, access, durability, options, comment] = share_row(share);
    pairs(&[
        ("name", name),
        ("volume", volume),
        ("path", path),
        ("comment", comment),
        ("access", if access.is_empty() { "nobody".to_owned() } else { access }),
        ("durability", durability),
        ("options", options),
    ]);
}

/// Names those who reach the directory of a new share by another share, and those whom the new one lets
/// into another one's directory: a share's grants cover everything below.
fn ways_around(shares: &[ShareView], name: &str) -> Vec<String> {
    let Some(made) = shares.iter().find(|share| share.name.eq_ignore_ascii_case(name)) else {
        return Vec::new();
    };
    let is_within = |inner: &ShareView, outer: &ShareView| {
        let (inner, outer) = (inner.path.to_lowercase(), outer.path.to_lowercase());
        outer.is_empty()
            || inner == outer
            || inner.strip_prefix(&outer).is_some_and(|rest| rest.starts_with('\\'))
    };
    let others = shares.iter().filter(|share| share.volume_id == made.volume_id && share.name != made.name);
    let mut notes = Vec::new();
    for other in others {
        let [_, _, path, access, ..] = share_row(other);
        let who = if access.is_empty() { "nobody".to_owned() } else { access };
        if is_within(made, other) {
            notes.push(format!(
                "share '{}' ({path}) also reaches the files of '{name}', and lets in: {who}; the files' access lists apply to \
                 both (`cenote acl`)",
                other.name
            ));
        } else if is_within(other, made) {
            notes.push(format!(
                "'{name}' also reaches the files of share '{}' ({path}), which lets in: {who}",
                other.name
            ));
        }
    }
    notes
}

/// Warns if nobody can connect: as in Windows, a new share is for Administrators alone, a group that
/// may have no members.
fn tell_if_nobody_has_access(client: &Client, name: &str) -> Result<(), Failure> {
    let share: ShareView = client.get(&format!("/shares/{}", escaped(name)))?;
    let groups: Vec<GroupView> = client.get("/groups")?;
    let is_empty = |who: &str| groups.iter().any(|group| group.name == who && group.members.is_empty());
    if share.access.iter().all(|grant| is_empty(&grant.who)) {
        let whose = match share.access.as_slice() {
            [] => "nobody".to_owned(),
            [only] => format!("{} alone, a group without members,", only.who),
            _ => "groups without members alone".to_owned(),
        };
        eprintln!(
            "cenote: {whose} may connect to '{name}' yet: `cenote share set {name} --grant WHO:full` lets a user or group in, or \
             `cenote group set GROUP --add USER` gives the group members"
        );
    }
    Ok(())
}

/// In the order of the list's columns.
fn share_row(share: &ShareView) -> [String; 7] {
    let access: Vec<_> =
        share.access.iter().map(|grant| format!("{}:{}", grant.who, word(grant.access))).collect();
    let options: Vec<_> = [
        (share.read_only, "read-only"),
        (share.encrypt, "encrypted"),
        (share.continuously_available, "continuously available"),
        (share.scale_out, "scale-out"),
        (share.access_based_enumeration, "access-based enumeration"),
        (!share.caching, "no caching"),
    ]
    .iter()
    .filter(|(set, _)| *set)
    .map(|(_, name)| *name)
    .collect();
    [
        share.name.clone(),
        share.volume.clone(),
        format!("\\{}", share.path),
        access.join(", "),
        word(share.durability),
        options.join(", "),
        share.comment.clone(),
    ]
}

fn share_options(options: args::ShareOptions) -> Result<ShareOptions, Failure> {
    let grant = |text: &String| {
        let (who, access) = who_and_what(text)?;
        let access = match access {
            "read" => ShareAccess::Read,
            "change" => ShareAccess::Change,
            "full" => ShareAccess::Full,
            _ => return Err(Failure::new(format!("'{text}': access to a share is read, change or full"))),
        };
        Ok(Grant { who: who.to_owned(), access })
    };
    let grants = options.grants.iter().map(grant).collect::<Result<Vec<_>, _>>()?;
    Ok(ShareOptions {
        comment: options.comment,
        access: (!grants.is_empty()).then_some(grants),
        durability: options.durability.map(|durability| match durability {
            args::Durability::Write => ShareDurability::Write,
            args::Durability::Close => ShareDurability::Close,
            args::Durability::Flush => ShareDurability::Flush,
        }),
        read_only: options.read_only,
        continuously_available: options.continuously_available,
        scale_out: options.scale_out,
        encrypt: options.encrypt,
        access_based_enumeration: options.access_based_enumeration,
        caching: options.caching,
    })
}

fn who_and_what(text: &str) -> Result<(&str, &str), Failure> {
    text.rsplit_once(':')
        .filter(|(who, what)| !who.is_empty() && !what.is_empty())
        .ok_or_else(|| Failure::new(format!("'{text}' is not WHO:ACCESS, such as ann:full")))
}

pub fn user(client: &Client, as_json: bool, command: args::User) -> Result<(), Failure> {
    match command {
        args::User::List => {
            let users: Vec<UserView> = client.get("/users")?;
            if as_json {
                return json(&users);
            }
            let columns = [
                Column("NAME", Align::Left),
                Column("ENABLED", Align::Left),
                Column("GROUPS", Align::Left),
                Column("FULL NAME", Align::Left),
                Column("SID", Align::Left),
            ];
            let rows = users.iter().map(|user| {
                let (groups, full_name) = (user.groups.join(", "), user.full_name.clone());
                vec![user.name.clone(), log_on(user), groups, full_name, user.sid.to_string()]
            });
            table(&columns, rows.collect(), "no users; `cenote user add NAME` adds one");
        }
        args::User::Show { name } => {
            let user: UserView = client.get(&format!("/users/{}", escaped(&name)))?;
            if as_json {
                return json(&user);
            }
            pairs(&[
                ("name", user.name.clone()),
                ("SID", user.sid.to_string()),
                ("full name", user.full_name.clone()),
                ("enabled", log_on(&user)),
                ("groups", user.groups.join(", ")),
                ("password set", format!("{} UTC", show_utc(user.password_set_unix_s as i64))),
            ]);
        }
        args::User::Add { name, password, full_name, groups } => {
            let given = read_password(password, Asked::Twice)?;
            add_user(client, as_json, given, AddUser { name, password: String::new(), full_name, groups })?;
        }
        args::User::Set { name, password, full_name, enabled } => {
            let password = read_password(password, Asked::Twice)?;
            let request = SetUser { name: None, password, full_name, enabled };
            if request.password.is_none() && request.full_name.is_none() && request.enabled.is_none() {
                return Err(Failure::new(
                    "nothing to change: give --password, --password-stdin, --full-name or --enabled",
                ));
            }
            let () = client.patch(&format!("/users/{}", escaped(&name)), &request)?;
            made::<UserView>(client, as_json, "users", &name, || format!("user '{name}' was changed"))?;
        }
        args::User::Rename { name, new_name } => {
            let request = SetUser { name: Some(new_name.clone()), ..SetUser::default() };
            let () = client.patch(&format!("/users/{}", escaped(&name)), &request)?;
            let message = || format!("user '{name}' is '{new_name}' now; its sessions ended");
            made::<UserView>(client, as_json, "users", &new_name, message)?;
        }
        args::User::Delete { name, confirmation } => {
            let what = format!("this deletes user '{name}' for good: a new user of that name is another one");
            delete(client, "users", &what, &name, &confirmation)?;
            say(as_json, format!("user '{name}' is gone"))?;
        }
    }
    Ok(())
}

/// Whether the user can log on, in a word or a few.
fn log_on(user: &UserView) -> String {
    match (user.enabled, user.password_lost) {
        (false, _) => "no",
        (true, true) => "needs a password",
        (true, false) => "yes",
    }
    .to_owned()
}

fn add_user(client: &Client, as_json: bool, given: Option<String>, request: AddUser) -> Result<(), Failure> {
    let generated = given.is_none();
    let password = match given {
        Some(password) => password,
        None => generated_password().map_err(|error| Failure::new(error.to_string()))?,
    };
    let request = AddUser { password: password.clone(), ..request };
    client.post::<()>("/users", &request)?;
    let name = request.name;
    if as_json {
        let user: UserView = client.get(&format!("/users/{}", escaped(&name)))?;
        return json(&AddedUser { user, password: generated.then_some(password) });
    }
    println!("user '{name}' was added");
    if generated {
        println!("password: {password}");
    }
    Ok(())
}

/// Number of questions for a password on a terminal: two for a new one, since nobody sees it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Once,
    Twice,
}

pub(super) fn read_password(password: args::Password, asked: Asked) -> Result<Option<String>, Failure> {
    if !password.password_stdin {
        return Ok(password.password);
    }
    let failed = |error| Failure::new(format!("no password could be read from standard input: {error}"));
    if std::io::stdin().is_terminal() {
        let first = rpassword::prompt_password("Password: ").map_err(failed)?;
        if asked == Asked::Twice && rpassword::prompt_password("Once more: ").map_err(failed)? != first {
            return Err(Failure::new("nothing was changed: the two passwords differ"));
        }
        return Ok(Some(first));
    }
    let mut text = String::new();
    std::io::stdin().lock().take(4096).read_to_string(&mut text).map_err(failed)?;
    Ok(Some(text.trim_end_matches(['\n', '\r']).to_owned()))
}

pub fn group(client: &Client, as_json: bool, command: args::Group) -> Result<(), Failure> {
    match command {
        args::Group::List => {
            let groups: Vec<GroupView> = client.get("/groups")?;
            if as_json {
                return json(&groups);
            }
            let columns =
                [Column("NAME", Align::Left), Column("MEMBERS", Align::Left), Column("SID", Align::Left)];
            let rows = groups
                .iter()
                .map(|group| vec![group.name.clone(), group.members.join(", "), group.sid.to_string()]);
            table(&columns, rows.collect(), "no groups");
        }
        args::Group::Add { name } => {
            client.post::<()>("/groups", &AddGroup { name: name.clone() })?;
            made::<GroupView>(client, as_json, "groups", &name, || format!("group '{name}' was added"))?;
        }
        args::Group::Set { name, add, remove } => {
            if add.is_empty() && remove.is_empty() {
                return Err(Failure::new("nothing to change: give --add MEMBER or --remove MEMBER"));
            }
            let () = client.patch(&format!("/groups/{}", escaped(&name)), &SetGroup { add, remove })?;
            made::<GroupView>(client, as_json, "groups", &name, || format!("group '{name}' was changed"))?;
        }
        args::Group::Delete { name, confirmation } => {
            let what = format!("this deletes group '{name}' and what it was granted on shares");
            delete(client, "groups", &what, &name, &confirmation)?;
            say(as_json, format!("group '{name}' is gone"))?;
        }
    }
    Ok(())
}

/// Reports that something was made or changed: as JSON, its present state.
fn made<T: Serialize + DeserializeOwned>(
    client: &Client,
    as_json: bool,
    kind: &str,
    name: &str,
    message: impl FnOnce() -> String,
) -> Result<(), Failure> {
    if as_json {
        return json(&client.get::<T>(&format!("/{kind}/{}", escaped(name)))?);
    }
    println!("{}", message());
    Ok(())
}

/// Checks that the thing exists, and asks for its name, which the API also wants.
fn delete(
    client: &Client,
    kind: &str,
    what: &str,
    name: &str,
    confirmation: &args::Confirmation,
) -> Result<(), Failure> {
    let path = format!("/{kind}/{}", escaped(name));
    client.get::<serde::de::IgnoredAny>(&path)?;
    confirm(what, name, confirmation.yes.as_deref())?;
    client.delete(&format!("{path}?confirm={}", escaped(name)))
}

pub fn acl(client: &Client, as_json: bool, command: args::Acl) -> Result<(), Failure> {
    match command {
        args::Acl::Show { share, path } => {
            let acl: AclView = client.get(&acl_path(&share, &path))?;
            if as_json {
                return json(&acl);
            }
            pairs(&[
                ("owner", acl.owner.clone()),
                ("group", acl.group.clone()),
                ("inheritance", if acl.protected { "off" } else { "on" }.to_owned()),
            ]);
            let Some(entries) = &acl.entries else {
                println!("no DACL: everyone may do everything");
                return Ok(());
            };
            println!();
            let columns = [
                Column("WHO", Align::Left),
                Column("KIND", Align::Left),
                Column("ACCESS", Align::Left),
                Column("APPLIES TO", Align::Left),
                Column("INHERITED", Align::Left),
            ];
            table(
                &columns,
                entries.iter().map(entry_row).collect(),
                "no entries: nobody but the owner may do anything",
            );
        }
        args::Acl::Set { share, path, owner, grants, denials, revocations, below } => {
            let mut grant = Vec::new();
            for (texts, allow) in [(&grants, true), (&denials, false)] {
                for text in texts {
                    let (who, access) = who_and_what(text)?;
                    grant.push(AclEntry {
                        who: who.to_owned(),
                        allow,
                        access: access.to_owned(),
                        object_inherit: true,
                        container_inherit: true,
                        inherit_only: false,
                        inherited: false,
                    });
                }
            }
            let request = SetAcl { owner, grant, revoke: revocations, ..SetAcl::default() };
            if request.owner.is_none() && request.grant.is_empty() && request.revoke.is_empty() {
                return Err(Failure::new("nothing to change: give --owner, --grant, --deny or --revoke"));
            }
            change_acl(client, as_json, &acl_path(&share, &path), request, &below)?;
        }
        args::Acl::Protect { share, path, drop, below } => {
            let wish = if drop { Inheritance::BreakAndDrop } else { Inheritance::BreakAndKeep };
            let request = SetAcl { inheritance: Some(wish), ..SetAcl::default() };
            change_acl(client, as_json, &acl_path(&share, &path), request, &below)?;
        }
        args::Acl::Inherit { share, path, below } => {
            let request = SetAcl { inheritance: Some(Inheritance::Restore), ..SetAcl::default() };
            change_acl(client, as_json, &acl_path(&share, &path), request, &below)?;
        }
        args::Acl::Propagate { share, path, below } => {
            change_acl(client, as_json, &acl_path(&share, &path), SetAcl::default(), &below)?;
        }
    }
    Ok(())
}

/// Changes an ACL, and waits until everything below has followed.
fn change_acl(
    client: &Client,
    as_json: bool,
    path: &str,
    request: SetAcl,
    below: &args::AclBelow,
) -> Result<(), Failure> {
    let way = if below.recursive { Below::Replace } else { Below::Follow };
    let changed: AclChanged = client.patch(path, &SetAcl { below: way, ..request })?;
    if as_json {
        if let (Some(job), false) = (changed.job, below.detach) {
            fail_if_one_failed(&wait(client, Some(job))?)?;
        }
        return json(&client.get::<AclView>(path)?);
    }
    println!("the ACL is set");
    for who in &changed.still_inherited {
        println!("'{who}' still has inherited entries: `cenote acl show` lists them");
    }
    match changed.job {
        Some(job) if below.detach => {
            println!("files and directories below follow; `cenote job watch {job}` shows the progress");
            Ok(())
        }
        Some(job) => watch(client, Some(job)),
        None => Ok(()),
    }
}

fn acl_path(share: &str, path: &str) -> String {
    format!("/shares/{}/acl?path={}", escaped(share), escaped(path))
}

fn entry_row(entry: &AclEntry) -> Vec<String> {
    let below = match (entry.object_inherit, entry.container_inherit) {
        (true, true) => "files and directories below",
        (true, false) => "files below",
        (false, true) => "directories below",
        (false, false) => "",
    };
    let applies = match (entry.inherit_only, below) {
        (_, "") => "this only".to_owned(),
        (true, below) => below.to_owned(),
        (false, below) => format!("this, {below}"),
    };
    vec![
        entry.who.clone(),
        if entry.allow { "allow" } else { "deny" }.to_owned(),
        entry.access.clone(),
        applies,
        if entry.inherited { "yes" } else { "no" }.to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn share(name: &str, path: &str, who: &str) -> ShareView {
        serde_json::from_value(json!({
            "name": name, "volume": "data", "volume_id": "01234567-89ab-cdef-0123-456789abcdef", "path": path, "comment": "",
            "access": [{"who": who, "access": "full"}], "durability": "close", "read_only": false, "continuously_available": false,
            "encrypt": false, "access_based_enumeration": false, "caching": true,
        }))
        .expect("a share")
    }

    #[test]
    fn a_share_of_a_directory_that_another_one_covers_says_who_gets_in_by_that() {
        let shares =
            [share("all", "", "Everyone"), share("pay", "Pay", "ann"), share("payroll", "payroll", "bob")];
        let notes = ways_around(&shares, "pay");
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].contains("share 'all'") && notes[0].contains("Everyone:full"), "{notes:?}");
        let deeper = [share("pay", "Pay", "ann"), share("year", "pay\\2026", "bob")];
        assert!(ways_around(&deeper, "year")[0].contains("share 'pay'"), "case does not matter");
        assert!(ways_around(&deeper, "pay")[0].contains("the files of share 'year'"));
        let apart = [share("a", "a", "ann"), share("b", "b", "bob")];
        assert!(ways_around(&apart, "b").is_empty());
    }
}
