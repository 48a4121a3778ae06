//! A store over a real file, through this machine's driver.

mod common;

use common::{Rig, pattern, small, small_options};
use disk::{FileDiskOptions, StandaloneDisk, create_file_disk};
use store::api::WriteClass;
use store::{Store, format, inspect};

#[test]
fn a_file_is_formatted_written_reopened_and_inspected() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk");
    let path = path.to_str().unwrap();
    create_file_disk(path.as_ref(), 16 << 20).unwrap();
    let open = |read_only| {
        let options = FileDiskOptions { read_only, direct: false, ..FileDiskOptions::default() };
        StandaloneDisk::open(path, options).unwrap()
    };
    drop(format(open(false), small()).unwrap());
    let mut rig = Rig::new(Store::open_with(open(false), small_options()).unwrap());
    rig.allocate(0, false);
    rig.write(WriteClass::Fresh, 0, &pattern(1, 100)).unwrap();
    rig.write(WriteClass::Overwrite, 7, &pattern(2, 3)).unwrap();
    rig.discard(50, 50).unwrap();
    rig.run_until_idle();
    drop(rig);
    let found = inspect(open(true)).unwrap();
    assert!(found.problems.is_empty(), "{found}");
    let mut rig = Rig::new(Store::open_with(open(false), small_options()).unwrap());
    assert_eq!(rig.read(7, 3), Ok(pattern(2, 3)));
    assert_eq!(rig.read(10, 40).unwrap(), pattern(1, 100)[10 * 4096..50 * 4096]);
    assert_eq!(rig.read(50, 50), Ok(vec![0; 50 * 4096]));
}
