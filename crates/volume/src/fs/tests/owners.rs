//! From blocks to the files that have them.

use super::*;

fn find(bench: &mut Bench, blocks: &[Lba]) -> (Vec<OwnedBlocks>, usize) {
    let mut search = OwnerSearch::new(blocks.iter().copied());
    while !bench.run(|fs| search.step(fs, 3)).expect("a search") {}
    search.finish()
}

fn blocks_of(bench: &mut Bench, stream: StreamId) -> Vec<Lba> {
    let extents =
        bench.run(|fs| extents_from(&mut fs.base.meta.store, &Transaction::new(), stream, 0, 100)).unwrap();
    let all =
        extents.iter().flat_map(|(_, extent)| (0..u64::from(extent.blocks)).map(|at| Lba(extent.lba.0 + at)));
    all.collect()
}

#[test]
fn blocks_lead_to_files_and_streams_by_path_and_place() {
    let mut bench = Bench::with(32, 1024, small());
    let directory = wide("directory");
    let parent = bench.run(|fs| fs.create(FileId::ROOT, &directory, &super::directory(5))).unwrap();
    let name = wide("Deep");
    let deep = bench.run(|fs| fs.create(parent, &name, &file(5))).unwrap();
    let plain = bench.create("plain");
    let named = wide("notes");
    let stream = bench.run(|fs| fs.create_stream(plain, &named, FileTime(5))).unwrap();
    for (stream, blocks) in [(StreamId::unnamed(deep), 8), (StreamId::unnamed(plain), 3), (stream, 2)] {
        bench.write(stream, 0, &vec![7; blocks * 4096]).unwrap();
    }
    bench.flush_all().unwrap();
    let of_deep = blocks_of(&mut bench, StreamId::unnamed(deep));
    let of_stream = blocks_of(&mut bench, stream);
    assert_eq!((of_deep.len(), of_stream.len()), (8, 2));
    let wanted = [of_deep[1], of_deep[2], of_deep[5], of_stream[1], Lba(0), Lba(1)];
    let (found, others) = find(&mut bench, &wanted);
    let found: Vec<_> = found
        .into_iter()
        .map(|owned| {
            let path = String::from_utf16(&owned.path.unwrap()).unwrap();
            (path, String::from_utf16(&owned.stream).unwrap(), owned.runs)
        })
        .collect();
    let expected = [
        (r"directory\Deep".to_owned(), String::new(), vec![(1, 2), (5, 1)]),
        ("plain".to_owned(), "notes".to_owned(), vec![(1, 1)]),
    ];
    assert_eq!(found, expected);
    assert_eq!(others, 2, "the superblocks are no file's");
}
