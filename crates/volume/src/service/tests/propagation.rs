//! Entries propagated to existing files and directories.

use super::*;
use crate::security::{Ace, AceFlags, Acl, Control, OwnEntries, Parts, SecurityDescriptor};
use crate::service::{Propagation, PropagationReport, PropagationStep};

/// FILE_OPEN_FOR_BACKUP_INTENT (MS-SMB2 2.2.13).
const BACKUP_INTENT: u32 = 0x0000_4000;
const BELOW: AceFlags = AceFlags::OBJECT_INHERIT.union(AceFlags::CONTAINER_INHERIT);

fn administrator() -> Arc<AccessToken> {
    let token = AccessToken {
        user: Sid::administrators(),
        groups: vec![Sid::everyone()],
        privileges: Privileges::all(),
        ..(*user(0)).clone()
    };
    Arc::new(token)
}

impl Bench {
    fn open_as_administrator(&mut self, path: &str, options: u32) -> OpenId {
        let caller = Caller { token: administrator(), ..caller(9) };
        let options = options | BACKUP_INTENT;
        let desired_access = rights::READ_CONTROL | rights::WRITE_DAC | rights::WRITE_OWNER;
        let create = Create { caller, options, desired_access, ..open_if(9, path) };
        self.create(create).expect("an open").open
    }

    fn make_file(&mut self, path: &str) {
        let open = self.open_as_administrator(path, 0);
        self.close(open).unwrap();
    }

    fn make_directory(&mut self, path: &str) {
        let open = self.open_as_administrator(path, crate::service::options::DIRECTORY_FILE);
        self.close(open).unwrap();
    }

    fn descriptor(&mut self, path: &str) -> SecurityDescriptor {
        let open = self.open_as_administrator(path, 0x0020_0000);
        let parts = (Parts::OWNER | Parts::DACL).bits();
        let Ok(Reply::Security(found)) = self.call(Operation::QuerySecurity { open, parts }) else {
            panic!()
        };
        self.close(open).unwrap();
        SecurityDescriptor::parse(&found).unwrap()
    }

    fn entries(&mut self, path: &str) -> Vec<Ace> {
        self.descriptor(path).dacl.expect("a DACL").aces
    }

    /// As `cenote acl set` writes it.
    fn set_entries(&mut self, path: &str, aces: Vec<Ace>, more: Control) {
        let control =
            Control::DACL_PRESENT | Control::DACL_AUTO_INHERITED | Control::DACL_AUTO_INHERIT_REQUIRED | more;
        let new = SecurityDescriptor { control, dacl: Some(Acl::new(aces)), ..Default::default() };
        let open = self.open_as_administrator(path, 0);
        let descriptor = new.build().unwrap();
        let parts = Parts::DACL.bits();
        self.call(Operation::SetSecurity { open, parts, descriptor }).expect("a change");
        self.close(open).unwrap();
    }

    fn begin(&mut self, path: &str, own: OwnEntries) -> Propagation {
        match self.call(Operation::OpenRoot { path: wide(path) }) {
            Ok(Reply::Root(top)) => Propagation::new(top, own),
            other => panic!("{other:?}"),
        }
    }

    /// Makes at most this many steps.
    fn carry_on(&mut self, propagation: &mut Propagation, steps: usize) -> PropagationReport {
        for _ in 0..steps {
            if self.service.propagate(propagation) == Ok(PropagationStep::Finished) {
                break;
            }
            self.run_polls();
        }
        propagation.report().clone()
    }

    fn propagate(&mut self, path: &str, own: OwnEntries) -> PropagationReport {
        let mut propagation = self.begin(path, own);
        self.carry_on(&mut propagation, 10_000)
    }
}

fn entry(sid: Sid, mask: u32) -> Ace {
    Ace::allow(sid, mask, BELOW)
}

fn has(aces: &[Ace], sid: &Sid, inherited: bool) -> bool {
    aces.iter().any(|ace| ace.sid == *sid && ace.flags.contains(AceFlags::INHERITED) == inherited)
}

fn tree(bench: &mut Bench) {
    for directory in ["top", r"top\in", r"top\in\deep", r"top\closed", r"top\closed\in"] {
        bench.make_directory(directory);
    }
    for file in [r"top\file", r"top\in\deep\file", r"top\closed\in\file"] {
        bench.make_file(file);
    }
    let own = vec![entry(Sid::guests(), rights::FILE_GENERIC_READ)];
    bench.set_entries(r"top\closed", own.clone(), Control::DACL_PROTECTED);
    let mut aces = bench.entries(r"top\in");
    aces.insert(0, own[0].clone());
    bench.set_entries(r"top\in", aces, Control::empty());
}

#[test]
fn what_is_below_follows_and_keeps_entries_of_its_own() {
    let mut bench = Bench::new();
    tree(&mut bench);
    let users = Sid::users();
    let aces = vec![entry(users.clone(), rights::FILE_MODIFY), entry(Sid::creator_owner(), rights::FILE_ALL)];
    bench.set_entries("top", aces, Control::empty());
    let report = bench.propagate("top", OwnEntries::Kept);
    assert_eq!((report.seen, report.changed, report.protected, report.unreached_count), (5, 4, 1, 0));
    for path in [r"top\file", r"top\in", r"top\in\deep", r"top\in\deep\file"] {
        let entries = bench.entries(path);
        assert!(has(&entries, &users, true) && !has(&entries, &users, false), "{path}: {entries:?}");
        // No entries from the volume's root are left.
        assert!(!has(&entries, &Sid::authenticated_users(), true), "{path}: {entries:?}");
    }
    assert!(has(&bench.entries(r"top\in"), &Sid::guests(), false));
    assert!(has(&bench.entries(r"top\in\deep\file"), &Sid::guests(), true));
    for path in [r"top\closed", r"top\closed\in", r"top\closed\in\file"] {
        assert!(!has(&bench.entries(path), &users, true), "{path}");
    }
    // New files get the same entries, so that nothing is left to change.
    for (made, as_in) in [(r"top\in\new", r"top\in\deep\file"), (r"top\file 2", r"top\file")] {
        bench.make_file(made);
        let (new, old) = (bench.entries(made), bench.entries(as_in));
        assert!(new.iter().all(|ace| ace.flags.contains(AceFlags::INHERITED)), "{new:?}");
        if as_in == r"top\file" {
            assert_eq!(new, old);
        }
    }
    assert_eq!(bench.propagate("top", OwnEntries::Kept).changed, 0);
}

#[test]
fn replacing_takes_own_entries_and_protection_away() {
    let mut bench = Bench::new();
    tree(&mut bench);
    bench.set_entries("top", vec![entry(Sid::users(), rights::FILE_MODIFY)], Control::empty());
    let report = bench.propagate("top", OwnEntries::Removed);
    assert_eq!((report.seen, report.protected, report.unreached_count), (7, 0, 0));
    for path in [r"top\in", r"top\closed", r"top\closed\in", r"top\closed\in\file", r"top\in\deep\file"] {
        let found = bench.descriptor(path);
        let aces = found.dacl.unwrap().aces;
        assert!(!found.control.contains(Control::DACL_PROTECTED), "{path}");
        assert_eq!(aces.len(), 1, "{path}: {aces:?}");
        assert!(has(&aces, &Sid::users(), true), "{path}: {aces:?}");
    }
}

#[test]
fn a_propagation_that_was_cut_off_and_begun_again_ends_as_one_alone() {
    let mut bench = Bench::new();
    bench.make_directory("top");
    for directory in 0..4 {
        bench.make_directory(&format!(r"top\{directory}"));
        for file in 0..60 {
            bench.make_file(&format!(r"top\{directory}\{file}"));
        }
    }
    bench.set_entries("top", vec![entry(Sid::users(), rights::FILE_MODIFY)], Control::empty());
    let mut first = bench.begin("top", OwnEntries::Kept);
    let cut_off = bench.carry_on(&mut first, 2);
    drop(first);
    assert!(cut_off.changed > 60 && cut_off.changed < 244, "{cut_off:?}");
    let again = bench.propagate("top", OwnEntries::Kept);
    assert_eq!((again.seen, again.changed), (244, 244 - cut_off.changed));
    assert!(has(&bench.entries(r"top\3\59"), &Sid::users(), true));
}

#[test]
fn a_step_is_bounded_and_clients_go_on_between() {
    let mut bench = Bench::new();
    bench.make_directory("top");
    for file in 0..200 {
        bench.make_file(&format!(r"top\{file}"));
    }
    let many = |count: u32| {
        let sid = |at| Sid::new(5, &[21, 1, 2, 3, 5000 + at]).unwrap();
        (0..count).map(|at| entry(sid(at), rights::FILE_MODIFY)).collect::<Vec<_>>()
    };
    bench.set_entries("top", many(1500), Control::empty());
    let mut propagation = bench.begin("top", OwnEntries::Kept);
    let mut steps = 0;
    loop {
        let before = bench.service.agenda.turn.spent;
        let step = bench.service.propagate(&mut propagation).unwrap();
        let spent = bench.service.agenda.turn.spent - before;
        // A turn, and the last file that was begun in it.
        assert!(spent < u64::from(crate::service::turn::STEPS_PER_TURN) + 30_000, "{spent}");
        bench.run_polls();
        if step == PropagationStep::Finished {
            break;
        }
        steps += 1;
    }
    assert!(steps > 4, "{steps}");
    assert_eq!(propagation.report().changed, 200);
}

#[test]
fn a_file_that_cannot_have_the_entries_is_named_and_the_others_follow() {
    let mut bench = Bench::new();
    for directory in ["top", r"top\full"] {
        bench.make_directory(directory);
    }
    for file in [r"top\a", r"top\z"] {
        bench.make_file(file);
    }
    let many = |base: u32| {
        let sid = move |at| Sid::new(5, &[21, 1, 2, 3, base + at]).unwrap();
        (0..1200).map(|at| entry(sid(at), rights::FILE_MODIFY)).collect::<Vec<_>>()
    };
    bench.set_entries(r"top\full", many(0), Control::empty());
    bench.set_entries("top", many(5000), Control::empty());
    let report = bench.propagate("top", OwnEntries::Kept);
    assert_eq!((report.changed, report.unreached_count), (2, 1));
    assert_eq!(String::from_utf16_lossy(&report.unreached[0].0), r"top\full");
}

#[test]
fn watchers_learn_of_changed_security() {
    let mut bench = Bench::new();
    tree(&mut bench);
    let reading = Create { desired_access: rights::FILE_GENERIC_READ, ..directory(1, "top") };
    let top = bench.create(reading).unwrap().open;
    let watch = bench.start(Operation::Notify { open: top, filter: 0x100, tree: true, bytes_max: 4096 });
    assert!(bench.answer(watch).is_none());
    bench.set_entries("top", vec![entry(Sid::everyone(), rights::FILE_ALL)], Control::empty());
    bench.propagate("top", OwnEntries::Kept);
    assert!(matches!(bench.answer(watch), Some(Ok(Reply::Notify(changes))) if !changes.is_empty()));
}
