//! The table without processes: files that the tests write, opened by path.

use super::*;
use crate::modules::{ModuleKind, OpenError, OpenedFile, Verification};
use proptest::prelude::*;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Opens files out of a map of path to real file, and counts how often.
#[derive(Default)]
struct FakeOpener {
    files: Mutex<HashMap<PathBuf, PathBuf>>,
    opened: AtomicUsize,
    memory: Vec<u8>,
}

impl FakeOpener {
    fn set(&self, path: &str, real: &Path) {
        self.files
            .lock()
            .unwrap()
            .insert(PathBuf::from(path), real.to_owned());
    }
}

impl ModuleOpener for FakeOpener {
    fn open(&self, request: OpenRequest<'_>) -> Result<OpenedFile, OpenError> {
        let MappedName::File { path, .. } = &request.mapping.name else {
            return Err(OpenError::NoFile);
        };
        let missing = || OpenError::Io {
            path: path.clone(),
            source: io::ErrorKind::NotFound.into(),
        };
        let real = self
            .files
            .lock()
            .unwrap()
            .get(path)
            .cloned()
            .ok_or_else(missing)?;
        self.opened.fetch_add(1, Ordering::Relaxed);
        let file = Arc::new(File::open(real).map_err(|_| missing())?);
        Ok(OpenedFile {
            file,
            path: path.clone(),
            verification: Verification::Kernel,
        })
    }

    fn read_memory(&self, _: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let count = buffer.len().min(self.memory.len());
        buffer[..count].copy_from_slice(&self.memory[..count]);
        Ok(count)
    }
}

/// The smallest ELF file with one load segment, at a virtual address that tells files apart.
fn elf(virtual_address: u64) -> Vec<u8> {
    let mut bytes = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut put = |values: &[(u64, usize)]| {
        for &(value, width) in values {
            bytes.extend_from_slice(&value.to_le_bytes()[..width]);
        }
    };
    put(&[(3, 2), (62, 2), (1, 4), (0, 8), (64, 8), (0, 8), (0, 4)]);
    put(&[(64, 2), (56, 2), (1, 2), (0, 2), (0, 2), (0, 2)]);
    put(&[
        (1, 4),
        (5, 4),
        (0, 8),
        (virtual_address, 8),
        (virtual_address, 8),
    ]);
    put(&[(0x10000, 8), (0x10000, 8), (0x1000, 8)]);
    bytes
}

struct Fixture {
    directory: tempfile::TempDir,
    opener: Arc<FakeOpener>,
    table: ModuleTable,
}

impl Fixture {
    fn new(files: &[(&str, u64)], limit: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let opener = Arc::new(FakeOpener {
            memory: elf(0),
            ..FakeOpener::default()
        });
        let table = ModuleTable::new(Arc::clone(&opener) as Arc<dyn ModuleOpener>, limit);
        let fixture = Self {
            directory,
            opener,
            table,
        };
        for (index, (path, virtual_address)) in files.iter().enumerate() {
            fixture.write(path, &format!("{index}"), *virtual_address);
        }
        fixture
    }

    fn write(&self, path: &str, real: &str, virtual_address: u64) {
        let real = self.directory.path().join(real);
        std::fs::write(&real, elf(virtual_address)).unwrap();
        self.opener.set(path, &real);
    }

    fn opened(&self) -> usize {
        self.opener.opened.load(Ordering::Relaxed)
    }
}

#[test]
fn an_address_is_found_with_its_offset_and_virtual_address() {
    let mut fixture = Fixture::new(&[("/lib/a.so", 0x40_0000)], 8);
    let text = b"1000-2000 r--p 0 8:1 5 /lib/a.so\n2000-4000 r-xp 1000 8:1 5 /lib/a.so\n";
    let changes = fixture.table.update(text);
    assert_eq!((changes.mapped.len(), changes.loaded.len()), (1, 1));
    let location = fixture.table.locate(0x2345).unwrap();
    assert_eq!(location.file_offset, 0x1345);
    assert_eq!(location.virtual_address, Some(0x40_1345));
    assert_eq!(
        fixture.table.module(location.module).unwrap().path(),
        Path::new("/lib/a.so")
    );
    assert_eq!(
        fixture.table.load_bias(location.module),
        Some(0x2000u64.wrapping_sub(0x40_1000))
    );
    for outside in [0, 0x1fff, 0x4000, u64::MAX] {
        assert_eq!(fixture.table.locate(outside), None);
    }
}

#[test]
fn another_library_at_the_same_address_is_another_module_and_the_old_one_stays_valid() {
    let mut fixture = Fixture::new(&[("/a.so", 0), ("/b.so", 0x5000)], 8);
    fixture.table.update(b"1000-2000 r-xp 0 8:1 5 /a.so\n");
    let old = fixture.table.locate(0x1500).unwrap();
    let changes = fixture.table.update(b"1000-2000 r-xp 0 8:1 6 /b.so\n");
    let new = fixture.table.locate(0x1500).unwrap();
    assert_ne!((old.mapping, old.module), (new.mapping, new.module));
    assert_eq!(new.virtual_address, Some(0x5500));
    assert_eq!(changes.unmapped, [old.mapping]);
    assert_eq!(
        (changes.loaded, changes.unloaded),
        (vec![new.module], vec![old.module])
    );
    let module = fixture.table.module(old.module).unwrap();
    assert_eq!(module.name(), "/a.so");
    assert!(matches!(
        module.content(),
        Ok(crate::modules::ModuleContent::File(_))
    ));
}

#[test]
fn what_did_not_change_keeps_its_identity_and_is_opened_once() {
    let mut fixture = Fixture::new(&[("/a.so", 0), ("/b.so", 0)], 8);
    fixture.table.update(b"1000-2000 r-xp 0 8:1 5 /a.so\n");
    let before = fixture.table.locate(0x1000).unwrap();
    let changes = fixture
        .table
        .update(b"1000-2000 r-xp 0 8:1 5 /a.so (deleted)\n8000-9000 r-xp 0 8:1 6 /b.so\n");
    assert_eq!(fixture.table.locate(0x1000), Some(before));
    assert_eq!((changes.mapped.len(), changes.unmapped.len()), (1, 0));
    assert_eq!(fixture.opened(), 2);
    assert!(fixture.table.update(b"").is_empty());
    assert_eq!(fixture.table.locate(0x1000), Some(before));
}

#[test]
fn an_address_of_an_unloaded_library_is_found_until_something_else_is_there() {
    let mut fixture = Fixture::new(&[("/a.so", 0), ("/main", 0)], 8);
    fixture
        .table
        .update(b"1000-2000 r-xp 0 8:1 5 /a.so\n8000-9000 r-xp 0 8:1 6 /main\n");
    let old = fixture.table.locate(0x1800).unwrap();
    fixture.table.update(b"8000-9000 r-xp 0 8:1 6 /main\n");
    assert_eq!(fixture.table.locate(0x1800), Some(old));
    fixture
        .table
        .update(b"1000-2000 r-xp 0 0:0 0\n8000-9000 r-xp 0 8:1 6 /main\n");
    let new = fixture.table.locate(0x1800).unwrap();
    assert_eq!(
        fixture.table.module(new.module).unwrap().kind(),
        ModuleKind::Anonymous
    );
}

#[test]
fn a_library_that_comes_back_is_the_same_module_unless_it_was_rebuilt() {
    let mut fixture = Fixture::new(&[("/a.so", 0), ("/main", 0)], 8);
    let with = b"1000-2000 r-xp 0 8:1 5 /a.so\n8000-9000 r-xp 0 8:1 6 /main\n";
    let without = b"8000-9000 r-xp 0 8:1 6 /main\n";
    fixture.table.update(with);
    let first = fixture.table.locate(0x1000).unwrap();
    fixture.table.update(without);
    fixture.table.update(with);
    let second = fixture.table.locate(0x1000).unwrap();
    assert_eq!(first.module, second.module);
    assert_ne!(first.mapping, second.mapping);
    fixture.table.update(without);
    fixture.write("/a.so", "rebuilt", 0x7000);
    fixture.table.update(with);
    let third = fixture.table.locate(0x1000).unwrap();
    assert_ne!(third.module, first.module);
    assert_eq!(third.virtual_address, Some(0x7000));
}

#[test]
fn ten_thousand_modules_keep_few_files_open_and_all_can_be_read() {
    use std::fmt::Write as _;
    let mut fixture = Fixture::new(&[], 16);
    let mut text = String::new();
    for index in 0..10_000u64 {
        let start = 0x1_0000 + index * 0x1000;
        let end = start + 0x1000;
        writeln!(
            text,
            "{start:x}-{end:x} r-xp 0 8:1 {} /lib/{index}.so",
            index + 1
        )
        .unwrap();
        let path = format!("/lib/{index}.so");
        match index {
            0..50 => fixture.write(&path, &index.to_string(), index),
            _ => fixture
                .opener
                .set(&path, &fixture.directory.path().join("0")),
        }
    }
    assert_eq!(fixture.table.update(text.as_bytes()).loaded.len(), 10_000);
    assert!(fixture.table.reader.open_files() <= 16);
    for index in [0, 4999, 9999] {
        let location = fixture.table.locate(0x1_0000 + index * 0x1000).unwrap();
        let module = fixture.table.module(location.module).unwrap();
        assert_eq!(module.name(), format!("/lib/{index}.so"));
    }
    // The file was closed long ago and has not changed since it was opened, so it opens again.
    let module = fixture.table.modules().last().unwrap();
    assert!(module.content().is_ok());
    assert!(fixture.table.reader.open_files() <= 16);
}

#[test]
fn a_file_that_was_closed_and_replaced_is_refused_not_mistaken() {
    let mut fixture = Fixture::new(&[("/a.so", 0), ("/b.so", 0x1000)], 1);
    fixture
        .table
        .update(b"1000-2000 r-xp 0 8:1 5 /a.so\n2000-3000 r-xp 0 8:1 6 /b.so\n");
    let location = fixture.table.locate(0x1000).unwrap();
    let module = Arc::clone(fixture.table.module(location.module).unwrap());
    assert!(module.content().is_ok());
    fixture
        .table
        .module(fixture.table.locate(0x2000).unwrap().module)
        .unwrap()
        .content()
        .unwrap();
    fixture.write("/a.so", "other", 0x9000);
    assert!(matches!(module.content(), Err(OpenError::Replaced { .. })));
}

#[test]
fn a_file_that_was_overwritten_in_place_is_refused() {
    let mut fixture = Fixture::new(&[("/a.so", 0)], 8);
    fixture.table.update(b"1000-2000 r-xp 0 8:1 5 /a.so\n");
    let module = Arc::clone(&fixture.table.modules()[0]);
    assert!(module.content().is_ok());
    std::fs::write(fixture.directory.path().join("0"), "something else").unwrap();
    assert!(matches!(module.content(), Err(OpenError::Replaced { .. })));
}

#[test]
fn things_that_are_no_file_are_told_apart() {
    let mut fixture = Fixture::new(&[], 8);
    fixture.table.update(
        b"1000-2000 rwxp 0 0:0 0\n2000-3000 r-xp 0 0:0 0 [vdso]\n3000-4000 --xp 0 0:0 0 [uprobes]\n\
          4000-5000 r-xp 0 0:0 0 [anon:jit 1]\n5000-6000 r-xp 0 0:1 9 /memfd:x (deleted)\n",
    );
    let kind = |address| {
        let module = fixture
            .table
            .module(fixture.table.locate(address).unwrap().module)
            .unwrap();
        (module.kind(), module.name().into_owned())
    };
    assert_eq!(kind(0x1000), (ModuleKind::Anonymous, String::new()));
    assert_eq!(
        kind(0x2000),
        (ModuleKind::Vdso, "linux-vdso.so.1".to_owned())
    );
    assert_eq!(kind(0x3000), (ModuleKind::Unknown, "[uprobes]".to_owned()));
    assert_eq!(kind(0x4000), (ModuleKind::Anonymous, String::new()));
    assert_eq!(kind(0x5000), (ModuleKind::Unknown, "/memfd:x".to_owned()));
    assert_eq!(
        fixture.table.locate(0x2010).unwrap().virtual_address,
        Some(0x10)
    );
}

/// One page: which of three files it maps, if any.
fn snapshot() -> impl Strategy<Value = Vec<Option<u8>>> {
    proptest::collection::vec(proptest::option::of(0u8..3), 12)
}

fn render(pages: &[Option<u8>]) -> String {
    let mut text = String::from("ff000-ff001 r-xp 0 8:1 99 /main\n");
    let mut lines: Vec<String> = pages
        .iter()
        .enumerate()
        .filter_map(|(page, file)| file.map(|file| (page as u64 * 0x1000 + 0x1000, file)))
        .map(|(at, file)| format!("{at:x}-{:x} r-xp {at:x} 8:1 {file} /{file}\n", at + 0x1000))
        .collect();
    lines.push(std::mem::take(&mut text));
    lines.concat()
}

proptest! {
    /// Against the naive model: a page is of the file of the last snapshot, or else of the last
    /// one in which it was of any; an identity never changes what it stands for.
    #[test]
    fn any_history_agrees_with_the_naive_model(
        history in proptest::collection::vec(snapshot(), 1..12),
    ) {
        let files = [("/0", 0), ("/1", 0x10_0000), ("/2", 0x20_0000), ("/main", 0)];
        let mut fixture = Fixture::new(&files, 2);
        let mut model: Vec<Option<u8>> = vec![None; 12];
        let mut meaning: HashMap<MappingId, (u64, String)> = HashMap::new();
        for pages in &history {
            fixture.table.update(render(pages).as_bytes());
            for (page, file) in pages.iter().enumerate() {
                model[page] = file.or(model[page]);
                let address = page as u64 * 0x1000 + 0x1234;
                let found = fixture.table.locate(address);
                let name = found.map(|l| fixture.table.module(l.module).unwrap().name().into_owned());
                prop_assert_eq!(&name, &model[page].map(|file| format!("/{file}")));
                let Some(location) = found else { continue };
                prop_assert_eq!(location.file_offset, address);
                let entry = (address, name.unwrap());
                prop_assert_eq!(meaning.entry(location.mapping).or_insert(entry.clone()), &entry);
            }
        }
    }

    #[test]
    fn any_text_leaves_a_sorted_table(text in "([0-9a-f]{1,4}-[0-9a-f]{1,4} r-xp 0 0:0 0\n){1,4}", at: u64) {
        let mut fixture = Fixture::new(&[], 2);
        fixture.table.update(text.as_bytes());
        let mappings = fixture.table.mappings();
        prop_assert!(mappings.windows(2).all(|pair| pair[0].entry.end <= pair[1].entry.start));
        let _ = fixture.table.locate(at);
    }
}
