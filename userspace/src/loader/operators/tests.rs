//! Operators as a compiler makes them: programs are compiled here, in all ways that differ in how
//! functions reach each other.

use std::{path::Path, process::Command};

use super::*;

/// A pool that throws when it is full, behind every form that forwards to it.
const POOL: &str = r#"
#include <cstddef>
#include <new>
static char pool[1 << 16];
static std::size_t used;
void *operator new(std::size_t size) {
    if (size > sizeof pool - used) throw std::bad_alloc();
    void *block = pool + used;
    used += (size + 15) & ~std::size_t{15};
    return block;
}
void operator delete(void *) noexcept { used += 0; }
void operator delete(void *, std::size_t) noexcept { used += 0; }
int main() { delete new int; }
"#;

/// Counts, and leaves the rest to malloc.
const WRAPPER: &str = r#"
#include <cstdlib>
#include <new>
static long calls;
void *operator new(std::size_t size) {
    calls++;
    if (void *block = std::malloc(size)) return block;
    throw std::bad_alloc();
}
void operator delete(void *block) noexcept { std::free(block); }
void operator delete(void *block, std::size_t) noexcept { std::free(block); }
int main() { delete new int; }
"#;

const WAYS: [&[&str]; 8] = [
    &["-O0"],
    &["-O2"],
    &["-O0", "-no-pie", "-fno-pie"],
    &["-O2", "-no-pie", "-fno-pie"],
    &["-O2", "-static"],
    &["-O0", "-static-pie", "-fPIE"],
    &["-O2", "-fno-plt", "-fPIE", "-pie"],
    &["-O2", "-shared", "-fPIC", "-Wl,-z,lazy"],
];

fn compile(source: &str, flags: &[&str]) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("fixture.cpp"), dir.path().join("fixture"));
    std::fs::write(&from, source).unwrap();
    let output = Command::new("g++")
        .args(["-fno-builtin", "-w"])
        .args(flags)
        .args([&from, Path::new("-o"), &to])
        .output()
        .expect("g++ makes the fixtures");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{flags:?}: {errors}");
    std::fs::read(to).unwrap()
}

fn operators(elf: &[u8]) -> Vec<Operator> {
    find(&ElfFile64::parse(elf).unwrap()).unwrap()
}

fn verdict_of(elf: &[u8], name: &str) -> Verdict {
    let all = operators(elf);
    let operator = all.iter().find(|operator| operator.name == name);
    operator
        .unwrap_or_else(|| panic!("no {name} in {all:?}"))
        .verdict
        .clone()
}

/// The verdict on `operator new` of a module with that body of it.
fn verdict_on(body: &str) -> Verdict {
    let source = format!(
        "#include <cstdlib>\n#include <cstring>\n#include <new>\nstatic char pool[4096];\n{body}\n\
         void operator delete(void *) noexcept {{}}\nint main() {{ delete new int; }}"
    );
    verdict_of(&compile(&source, &["-O2"]), "_Znwm")
}

fn is_apart(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Apart { .. })
}

fn function(name: &'static str) -> Verdict {
    Verdict::Leads(Lead::Function(name))
}

#[test]
fn pools_are_apart_however_they_are_compiled() {
    for flags in WAYS {
        let elf = compile(POOL, flags);
        let file = ElfFile64::<Endianness, _>::parse(&*elf).unwrap();
        let image = Image::new(&file).unwrap();
        for name in ["_Znwm", "_ZdlPv"] {
            let verdict = verdict_of(&elf, name);
            let Verdict::Apart { rets } = verdict else {
                panic!("{flags:?} {name}: {verdict:?}");
            };
            assert!(!rets.is_empty(), "{flags:?} {name}");
            for ret in rets {
                let offset = usize::try_from(image.offset(ret).unwrap()).unwrap();
                assert_eq!(elf[offset], 0xc3, "{flags:?} {name} at {ret:x}");
            }
        }
    }
}

#[test]
fn wrappers_lead_into_malloc_however_they_are_compiled() {
    for flags in WAYS {
        let elf = compile(WRAPPER, flags);
        assert_eq!(verdict_of(&elf, "_Znwm"), function("malloc"), "{flags:?}");
        assert_eq!(verdict_of(&elf, "_ZdlPv"), function("free"), "{flags:?}");
    }
}

#[test]
fn forms_that_lead_into_another_are_left_to_it() {
    // The static program has libstdc++'s other forms in it.
    let source = POOL.replace("delete new int", "delete[] new (std::nothrow) int[9]");
    let elf = compile(&source, &["-O2", "-static"]);
    assert!(is_apart(&verdict_of(&elf, "_Znwm")));
    for name in ["_Znam", "_ZnamRKSt9nothrow_t"] {
        let verdict = verdict_of(&elf, name);
        assert!(
            matches!(verdict, Verdict::Leads(Lead::Function(to)) if to.starts_with("_Zn")),
            "{name}: {verdict:?}"
        );
    }
    let jumping = compile(
        &format!("{POOL}\nvoid *operator new[](std::size_t n) {{ return ::operator new(n); }}"),
        &["-O2", "-fPIC", "-shared", "-fsemantic-interposition"],
    );
    assert_eq!(verdict_of(&jumping, "_Znam"), function("_Znwm"));
}

#[test]
fn the_runtime_library_leads_into_malloc() {
    let maps = Command::new("g++")
        .arg("-print-file-name=libstdc++.so.6")
        .output()
        .unwrap();
    let path = String::from_utf8(maps.stdout).unwrap();
    let operators = operators(&std::fs::read(path.trim()).unwrap());
    assert!(operators.len() >= 18, "{operators:?}");
    for operator in operators {
        assert!(
            matches!(operator.verdict, Verdict::Leads(Lead::Function(_))),
            "{operator:?}"
        );
    }
}

#[test]
fn what_fails_by_an_exception_may_allocate_before() {
    let verdict = verdict_on(
        "[[noreturn]] __attribute__((noinline)) void fail() { std::free(std::malloc(9)); throw 1; }
         void *operator new(std::size_t n) { if (n > 64) fail(); return pool; }",
    );
    assert!(is_apart(&verdict), "{verdict:?}");
}

#[test]
fn the_new_handler_is_no_unknown_pointer() {
    const ASKS: &str = "#include <new>\nstatic char pool[4096];
        void *operator new(std::size_t n) { for (;;) { if (n < 64) return pool;
            auto handler = std::get_new_handler();
            if (!handler) throw std::bad_alloc();
            handler(); } }
        int main() { return new int == nullptr; }";
    for flags in WAYS {
        let verdict = verdict_of(&compile(ASKS, flags), "_Znwm");
        assert!(is_apart(&verdict), "{flags:?}: {verdict:?}");
    }
}

#[test]
fn what_cannot_be_seen_through_is_taken_to_lead() {
    let cases = [
        (
            "void *(*hook)(std::size_t) = std::malloc; \
             void *operator new(std::size_t n) { return hook(n); }",
            Verdict::Leads(Lead::Pointer),
        ),
        (
            "void *operator new(std::size_t) { return std::getenv(\"A\") ? pool : \
             strdup(\"b\"); }",
            Verdict::Leads(Lead::Unknown("strdup".to_owned())),
        ),
        (
            "volatile int times; __attribute__((optimize(\"O0\"))) void *operator new(std::size_t n) \
             { return times++ & 1 ? ::operator new(n) : pool; }",
            Verdict::Leads(Lead::Itself),
        ),
        (
            "void *operator new(std::size_t n) { return std::memset(pool, 0, n); }",
            Verdict::Unfollowed,
        ),
        (
            "void *operator new(std::size_t) { std::abort(); }",
            Verdict::Unfollowed,
        ),
    ];
    for (body, expected) in cases {
        assert_eq!(verdict_on(body), expected, "{body}");
    }
}

#[test]
fn operators_that_are_malloc_are_none() {
    let source = r#"
        #include <cstddef>
        static char pool[4096];
        extern "C" void *malloc(std::size_t) { return pool; }
        extern "C" void free(void *) {}
        void *operator new(std::size_t) __attribute__((alias("malloc")));
        void operator delete(void *) noexcept __attribute__((alias("free")));
    "#;
    let elf = compile(source, &["-O2", "-shared", "-fPIC"]);
    assert_eq!(operators(&elf), []);
}

#[test]
fn cut_and_garbled_files_do_no_harm() {
    let whole = compile(POOL, &["-O2"]);
    for cut in (0..whole.len()).step_by(61) {
        if let Ok(file) = ElfFile64::<Endianness, _>::parse(&whole[..cut]) {
            let _any = find(&file);
        }
        let mut garbled = whole.clone();
        garbled[cut] ^= 0xff;
        if let Ok(file) = ElfFile64::<Endianness, _>::parse(&*garbled) {
            let _any = find(&file);
        }
    }
}
