//! Files that end too early, because a kill or the disk cut a write short.

use super::*;

/// Batches of the image, which the engine and the journal hold.
const BATCHES: u64 = 40;

#[test]
fn an_entry_that_a_kill_cut_short_is_neither_damage_nor_loss() {
    // A directory as a kill leaves it, and its archive with one more entry, which the kill cuts short.
    let scratch = tempfile::tempdir().unwrap();
    let [data, image, cut] = ["data", "image", "cut"].map(|name| scratch.path().join(name));
    let store = open(&data).store;
    (0..BATCHES).for_each(|n| wait(store.commit(numbered(n))).unwrap());
    std::thread::sleep(Duration::from_millis(300));
    (BATCHES..BATCHES + 3).for_each(|n| wait(store.commit(numbered(n))).unwrap());
    copy(&data, &image);
    let from = fs::metadata(data.join("archive")).unwrap().len() as usize;
    wait(store.commit(through(1_000))).unwrap();
    let whole = fs::read(data.join("archive")).unwrap();
    store.close().unwrap();
    let length = whole.len() - from;
    let ends = [
        0,
        1,
        51,
        52,
        53,
        4_096,
        65_536,
        length - 53,
        length - 52,
        length - 1,
        length,
    ];
    let zeros = [&whole[..from], &[0; 4_096]].concat();
    let cuts = ends.iter().map(|end| whole[..from + end].to_vec());
    for archive in cuts.chain([zeros]) {
        let story = format!("{} of {length} bytes", archive.len() - from);
        copy(&image, &cut);
        fs::write(cut.join("archive"), archive).unwrap();
        // Each start appends what the journal has, behind what the kill left.
        for again in 0..3 {
            let opened = open(&cut);
            assert_eq!(opened.report.lost, Loss::default(), "{story}, {again}");
            let store = opened.store;
            let last = BATCHES + 3 + again;
            assert_eq!(present(&store, 0..last), Ok(last as usize), "{story}");
            wait(store.commit(numbered(last))).unwrap();
            let copies = cut.join(format!("copy-{again}"));
            store
                .snapshot(&copies)
                .unwrap_or_else(|error| panic!("{story}: {error}"));
            let copied = open(&copies).store;
            assert_eq!(
                present(&copied, 0..last + 1),
                Ok(last as usize + 1),
                "{story}"
            );
            copied.close().unwrap();
            fs::remove_dir_all(&copies).unwrap();
            store.close().unwrap();
            // Whatever the engine has comes from the archive.
            fs::remove_dir_all(cut.join("sled")).unwrap();
        }
        fs::remove_dir_all(&cut).unwrap();
    }
}

/// How many of the batches a directory has, and how much it says is lost.
fn found_and_told(data: &Path, batches: &[Batch]) -> (usize, u64) {
    let opened = open(data);
    let ids: Vec<_> = batches.iter().map(|batch| batch.blobs[0].0).collect();
    let found = opened.store.blobs(&ids).unwrap();
    opened.store.close().unwrap();
    let found = found.iter().filter(|blob| blob.is_some()).count();
    (found, opened.report.lost.records())
}

/// What is missing is told where no kill can have cut the archive short: without an engine, because
/// then the archive is a copy, and before groups that the journal has.
#[test]
fn an_archive_that_lost_its_end_is_made_up_for_or_told() {
    let scratch = tempfile::tempdir().unwrap();
    let (data, image) = (scratch.path().join("data"), scratch.path().join("image"));
    let batches: Vec<Batch> = (0..12).map(through).chain((12..16).map(numbered)).collect();
    let store = open(&data).store;
    for batch in &batches {
        wait(store.commit(batch.clone())).unwrap();
    }
    copy(&data, &image);
    store.close().unwrap();
    let whole = fs::read(image.join("archive")).unwrap();
    let cut = scratch.path().join("cut");
    for part in 1..24 {
        let archive = &whole[..whole.len() * part / 24];
        copy(&image, &cut);
        fs::write(cut.join("archive"), archive).unwrap();
        let (found, told) = found_and_told(&cut, &batches);
        assert!(
            found == batches.len() || told > 0,
            "{found} at {part}, killed"
        );
        fs::remove_dir_all(&cut).unwrap();
        fs::create_dir_all(&cut).unwrap();
        fs::write(cut.join("archive"), archive).unwrap();
        let (found, told) = found_and_told(&cut, &batches);
        assert!(
            found < batches.len() && told > 0,
            "{found} at {part}, alone"
        );
        assert_eq!(found_and_told(&cut, &batches), (found, 0), "told twice");
        fs::remove_dir_all(&cut).unwrap();
    }
}

#[test]
fn what_is_no_archive_is_left_as_it_is() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("archive");
    let foreign = noise(1, 5_000);
    fs::write(&path, &foreign).unwrap();
    assert_eq!(found_and_told(scratch.path(), &[numbered(1)]), (0, 1));
    assert!(fs::read(&path).unwrap().starts_with(&foreign));
}

#[test]
fn a_damaged_log_without_an_archive_is_told_and_an_empty_one_is_not() {
    for empty in [false, true] {
        let scratch = tempfile::tempdir().unwrap();
        let (data, image) = (scratch.path().join("data"), scratch.path().join("image"));
        let store = open(&data).store;
        (0..30).for_each(|n| wait(store.commit(through(n))).unwrap());
        std::thread::sleep(Duration::from_millis(300));
        copy(&data, &image);
        store.close().unwrap();
        fs::remove_file(image.join("archive")).unwrap();
        fs::remove_file(image.join("journal")).unwrap();
        let log = image.join("sled/db");
        if empty {
            fs::write(&log, "").unwrap();
        } else {
            flip(&log, fs::metadata(&log).unwrap().len() / 2, 2_000);
        }
        let batches: Vec<Batch> = (0..30).map(through).collect();
        let (found, told) = found_and_told(&image, &batches);
        assert_eq!(told > 0, !empty, "{found} found, {told} told");
    }
}
