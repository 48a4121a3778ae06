//! Operations that are refused after they have begun to change something.

use super::*;

/// Whether a name leads somewhere.
fn is_there(bench: &mut Bench, path: &str) -> bool {
    match bench.create(Create { disposition: Disposition::Open, ..open_if(1, path) }) {
        Ok(created) => bench.close(created.open).is_ok(),
        Err(status) => {
            assert_eq!(status, NtStatus::OBJECT_NAME_NOT_FOUND, "{path}");
            false
        }
    }
}

#[test]
pub fn a_create_that_is_refused_when_its_file_is_made_leaves_no_name() {
    let mut bench = Bench::new();
    let there = bench.create(open_if(1, "there")).expect("made").open;
    bench.close(there).expect("closed");
    let root = bench.create(root(1)).expect("opened").open;
    let before = bench.names(root, "*");
    for path in ["new", "new:stream", "there:stream"] {
        let create = Create { allocation_bytes: Some(1 << 40), ..open_if(1, path) };
        assert_eq!(bench.create(create).err(), Some(NtStatus::DISK_FULL), "{path}");
        assert!(!is_there(&mut bench, path) && !is_there(&mut bench, "new"), "{path}");
        assert_eq!(bench.names(root, "*"), before, "{path}");
        let again = Create { disposition: Disposition::Create, ..open_if(1, path) };
        let made = bench.create(Create { allocation_bytes: Some(4096), ..again }).expect("its name is free");
        bench.set(made.open, SetInformation::Disposition { flags: 1 }).expect("marked");
        bench.close(made.open).expect("closed");
        if path == "new:stream" {
            let file = bench.create(open_if(1, "new")).expect("opened").open;
            bench.set(file, SetInformation::Disposition { flags: 1 }).expect("marked");
            bench.close(file).expect("closed");
        }
    }
}
