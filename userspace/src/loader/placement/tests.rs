//! Functions as compilers make them, in assembly language, so that it is known what must be found.

use std::{fmt::Write as _, ops::Range, path::Path, process::Command};

use object::{Object, ObjectSymbol, read::elf::ElfFile64};

use super::*;

const LINUX_6_18: KernelVersion = (6, 18);

/// Assembles a function `malloc` into a library and places probes in it. Each place is told as its
/// label, or distance from the begin, with its task and registers.
fn placed(code: &str) -> Option<Vec<String>> {
    placed_of(code, Arguments::Size)
}

/// The same of a function that is told the size as `arguments` says.
fn placed_of(code: &str, arguments: Arguments) -> Option<Vec<String>> {
    let library = assemble(code);
    let file = ElfFile64::<object::Endianness, _>::parse(&*library).unwrap();
    let image = Image::new(&file).unwrap();
    let spots = inside(&image, range_of(&file, "malloc"), arguments, LINUX_6_18)?;
    let label = |address| {
        let symbol = file.symbols().find(|symbol| {
            symbol.address() == address && symbol.name().is_ok_and(|name| name.starts_with("at_"))
        });
        symbol.map_or_else(
            || format!("{address:#x}"),
            |symbol| symbol.name().unwrap().to_owned(),
        )
    };
    let told = |spot: &Spot| {
        let mut text = format!("{} {:?}", label(spot.address), spot.task);
        for register in [spot.point.size_in, spot.point.result_in]
            .into_iter()
            .flatten()
        {
            write!(text, " {}", name_of(register)).unwrap();
        }
        write!(text, " {}/{}", spot.point.stack_words, spot.point.rbp_words).unwrap();
        text
    };
    Some(spots.iter().map(told).collect())
}

fn range_of(file: &ElfFile64<'_, object::Endianness>, name: &str) -> Range<u64> {
    let mut symbols = file.dynamic_symbols();
    let symbol = symbols.find(|symbol| symbol.name() == Ok(name)).unwrap();
    symbol.address()..symbol.address() + symbol.size()
}

fn assemble(code: &str) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("fixture.s"), dir.path().join("fixture.so"));
    let source = format!(
        ".text\n.globl malloc\n.type malloc, @function\nmalloc:\n{code}\n.size malloc, .-malloc\n\
         refill:\nret\n.globl abort\n.type abort, @function\nabort:\nhlt\n.size abort, .-abort\n"
    );
    std::fs::write(&from, source).unwrap();
    let output = Command::new("cc")
        .args(["-shared", "-nostdlib", "-Wl,--build-id=none"])
        .args([&from, Path::new("-o"), &to])
        .output()
        .expect("cc makes the fixtures");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    std::fs::read(&to).unwrap()
}

/// A cached block that is checked, or else one that another function makes.
const CACHED: &str = "
    push %rbx
    mov %rdi, %rbx
    mov cache(%rip), %rax
    test %rax, %rax
    je 1f
    test $15, %al
at_checked:
    jne 2f
    pop %rbx
    ret
1:  call refill
    test %rax, %rax
at_made:
    je 3f
    movq $1, -8(%rax)
3:  pop %rbx
    ret
2:  call abort
    .comm cache, 8
    .hidden cache";

#[test]
fn one_point_does_where_size_and_result_are_known() {
    let expected = ["at_checked Whole rbx rax 1/0", "at_made Whole rbx rax 1/0"];
    assert_eq!(placed(CACHED).unwrap(), expected);
}

#[test]
fn a_size_that_is_lost_is_taken_before() {
    let code = CACHED.replace(
        "1:  call refill",
        "1:  xor %ebx, %ebx\nat_call: call refill",
    );
    let spots = placed(&code.replace("je 1f", "at_empty: je 1f")).unwrap();
    assert_eq!(
        spots,
        [
            "at_call Begin rdi 1/0",
            "at_checked Whole rbx rax 1/0",
            "at_made End rax 1/0"
        ]
    );
}

#[test]
fn what_no_emulated_instruction_sees_is_not_placed() {
    let code = CACHED.replace("test %rax, %rax\nat_made:\n    je 3f\n", "");
    let code = code.replace("    test %rax, %rax\nat_made:\n    je 3f", "");
    assert_eq!(placed(&code), None);
}

#[test]
fn a_jump_to_anywhere_is_not_followed() {
    let code = CACHED.replace(
        "1:  call refill",
        "1:  pop %rbx\n    jmp *%rax\n    call refill",
    );
    assert_eq!(placed(&code), None);
}

#[test]
fn another_result_on_one_way_is_no_point() {
    // Behind the check the result is that in rax on one way, and the first argument on the other.
    let code = CACHED.replace(
        "at_checked:\n    jne 2f",
        "at_checked:\n    jne 2f\n    cmpq $0, (%rax)\nat_late:\n    jne 4f\n    mov %rbx, %rax\n4:",
    );
    assert_eq!(placed(&code), None);
}

#[test]
fn null_needs_no_point() {
    let code = CACHED.replace(
        "    push %rbx\n    mov %rdi, %rbx\n",
        "    push %rbx\n    mov %rdi, %rbx\n    test %rdi, %rdi\n    jns 5f\n    xor %eax, %eax\n    \
         jmp 3f\n5:",
    );
    let spots = placed(&code).unwrap();
    assert_eq!(
        spots,
        ["at_checked Whole rbx rax 1/0", "at_made Whole rbx rax 1/0"]
    );
}

#[test]
fn the_callers_rbp_is_found_where_it_is_saved() {
    let code = CACHED.replace(
        "push %rbx",
        "push %rbp\n    push %rbx\n    sub $24, %rsp\n    xor %ebp, %ebp",
    );
    let code = code.replace("pop %rbx", "add $24, %rsp\n    pop %rbx\n    pop %rbp");
    let spots = placed(&code).unwrap();
    assert_eq!(
        spots,
        ["at_checked Whole rbx rax 5/1", "at_made Whole rbx rax 5/1"]
    );
}

#[test]
fn a_size_in_a_slot_that_others_may_write_is_not_trusted() {
    let kept = |told: &str| {
        let code = CACHED.replace(
            "1:  call refill\n    test %rax, %rax",
            &format!(
                "1:  mov %rbx, %rsi\n    sub $16, %rsp\n    mov %rbx, (%rsp)\n    {told}\n    \
                 call refill\n    mov (%rsp), %rbx\n    add $16, %rsp\n    test %rax, %rax"
            ),
        );
        placed(&code).unwrap()
    };
    assert!(kept("").contains(&"at_made Whole rbx rax 1/0".to_owned()));
    assert!(kept("mov %rsp, %rdx").contains(&"at_made End rax 1/0".to_owned()));
}

/// `CACHED` with a frame pointer and 16 bytes of its own on the stack.
fn framed() -> String {
    let begin = "push %rbp\n    mov %rsp, %rbp\n    push %rbx\n    sub $24, %rsp";
    let code = CACHED.replacen("push %rbx", begin, 1);
    code.replace("pop %rbx", "mov -8(%rbp), %rbx\n    leave")
}

#[test]
fn frames_are_followed_by_their_pointer() {
    let expected = ["at_checked Whole rbx rax 5/1", "at_made Whole rbx rax 5/1"];
    assert_eq!(placed(&framed()).unwrap(), expected);
    // Others go back to the registers that they have saved.
    let popped = framed().replace("leave", "lea -8(%rbp), %rsp\n    pop %rbx\n    pop %rbp");
    assert_eq!(placed(&popped).unwrap(), expected);
}

#[test]
fn a_size_in_a_frame_that_others_may_write_to_is_not_trusted() {
    let kept = |told: &str| {
        let code = framed().replace(
            "1:  call refill",
            &format!(
                "1:  mov %rbx, -24(%rbp)\n    xor %ebx, %ebx\n    {told}\nat_call: call refill\n    \
                 mov -24(%rbp), %rbx"
            ),
        );
        placed(&code)
    };
    assert!(
        kept("")
            .unwrap()
            .contains(&"at_made Whole rbx rax 5/1".to_owned())
    );
    for told in [
        "lea -16(%rbp), %rdx",
        "mov %rbp, %rdx",
        "movb $0, -24(%rbp)",
    ] {
        let spots = kept(told).unwrap();
        assert!(
            spots.contains(&"at_made End rax 5/1".to_owned()),
            "{told}: {spots:?}"
        );
    }
    assert_eq!(kept("movb $0, -24(%rbp,%rdx)"), None);
}

#[test]
fn writes_to_a_frame_that_may_be_another_are_not_followed() {
    // On one way to the write rbp is a frame pointer, on the other one it is not.
    let code = framed().replace(
        "test %rax, %rax\n    je 1f",
        "test %rax, %rax\n    jne 6f\n    mov cache(%rip), %rbp\n6:  movq $0, (%rbp)\n    je 1f",
    );
    assert_eq!(placed(&code), None);
}

#[test]
fn a_call_that_aborts_by_its_argument_does_not_return() {
    let report = "
report:
    push %rbp
    and $1, %edi
    mov %edi, %ebp
    call refill
    test %ebp, %ebp
    jne 7f
    pop %rbp
    ret
7:  call abort
    nop
";
    let code = |argument| {
        let call = format!("2:  mov ${argument}, %edi\n    call report\n    jmp 3b");
        // Behind `malloc` itself, as part of which its size is told.
        CACHED.replace(
            "2:  call abort",
            &format!("{call}\n    .size malloc, .-malloc{report}"),
        )
    };
    let library = |argument| code(argument).replace(".size malloc, .-malloc\nrep", "\nrep");
    assert!(placed(&library(1)).is_some());
    assert_eq!(placed(&library(2)), None);
}

/// `CACHED` that multiplies first, as a `calloc`.
fn multiplied() -> String {
    let begin = "mov %rdi, %rax\n    push %rbx\n    mul %rsi\n    mov %rax, %rbx\n    jo 2f";
    CACHED.replacen("push %rbx\n    mov %rdi, %rbx", begin, 1)
}

#[test]
fn a_product_of_the_arguments_is_the_size() {
    let of = |code: &str| placed_of(code, Arguments::Factors);
    let expected = ["at_checked Whole rbx rax 1/0", "at_made Whole rbx rax 1/0"];
    assert_eq!(of(&multiplied()).unwrap(), expected);
    // Not that of the first argument alone, or with anything else.
    assert_eq!(of(CACHED), None);
    assert_eq!(of(&multiplied().replace("mul %rsi", "mul %rdx")), None);
    assert_eq!(of(&multiplied().replace("mul %rsi", "mul %rdi")), None);
    assert_eq!(of(&multiplied().replace("mul %rsi", "mul %esi")), None);
}

#[test]
fn what_is_cleared_at_last_is_the_result() {
    let cleared = |function: &str| {
        let code = multiplied().replace(
            "movq $1, -8(%rax)\n",
            &format!("mov %rax, %rdi\n    pop %rbx\n    jmp {function}@plt\n"),
        );
        placed_of(&code, Arguments::Factors)
    };
    let expected = ["at_checked Whole rbx rax 1/0", "at_made Whole rbx rax 1/0"];
    assert_eq!(cleared("memset").unwrap(), expected);
    assert_eq!(cleared("memcmp"), None);
}

/// A cached block whose check overwrites the size, or else one that another function makes.
const EARLY: &str = "
    mov cache(%rip), %rsi
    test %rsi, %rsi
at_cached:
    je 1f
    mov %rsi, %rdi
    and $15, %edi
at_checked:
    jne 2f
    mov %rsi, %rax
    ret
1:  push %rbx
    mov %rdi, %rbx
    call refill
    test %rax, %rax
at_made:
    je 3f
    movq $1, -8(%rax)
3:  pop %rbx
    ret
2:  call abort
    .comm cache, 8
    .hidden cache";

#[test]
fn a_block_is_seen_where_it_is_found_not_to_be_null() {
    let expected = ["at_cached Whole rdi rsi 0/0", "at_made Whole rbx rax 1/0"];
    assert_eq!(placed(EARLY).unwrap(), expected);
    // Something else than what is tested is returned.
    let other = EARLY.replace("mov %rsi, %rax", "mov (%rsi), %rax");
    assert_eq!(placed(&other), None);
}

#[test]
fn null_is_followed_through_what_holds_it() {
    let tried_again = |kept: &str| {
        let code = format!(
            "push %rbx\n push %r12\n mov %rdi, %rbx\n call refill\n {kept}\n test %rax, %rax\n\
             at_first: jne 4f\n call refill\n test %rax, %rax\nat_again: je 5f\n \
             movq $1, -8(%rax)\n4: pop %r12\n pop %rbx\n ret\n\
             5: mov %r12, %rax\n pop %r12\n pop %rbx\n ret"
        );
        placed(&code)
    };
    let expected = ["at_first Whole rbx rax 2/0", "at_again Whole rbx rax 2/0"];
    assert_eq!(tried_again("mov %rax, %r12").unwrap(), expected);
    for kept in [
        "mov %rbx, %r12",
        "lea 8(%rax), %r12",
        "mov %rax, %r12\n mov %rbx, %rax",
    ] {
        assert_eq!(tried_again(kept), None, "{kept}");
    }
}

#[test]
fn a_call_of_another_probed_function_is_not_placed() {
    let calling = |call: &str| {
        let code = multiplied().replace("call refill", call);
        placed_of(&code, Arguments::Factors)
    };
    assert!(calling("call refill").is_some());
    assert!(calling("call memset@plt").is_some());
    for call in ["call valloc@plt", "call *%rdi", "call unknown@plt"] {
        assert_eq!(calling(call), None, "{call}");
    }
}

#[test]
fn a_size_that_is_everywhere_is_not_followed() {
    let kept = |places: usize| {
        let stores: String = (0..places)
            .map(|place| format!("mov %rbx, {}(%rsp)\n", 8 * place))
            .collect();
        let begin = format!("1: sub $800, %rsp\n{stores}add $800, %rsp\n call refill\n");
        placed(&CACHED.replace("1:  call refill", &begin))
    };
    assert!(kept(8).is_some());
    assert_eq!(kept(100), None);
}

/// Code with any bytes changed: no panic, and points on emulated instructions alone.
#[test]
fn changed_code_is_placed_or_not_but_never_harms() {
    const ROUNDS: usize = 2000;
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: usize| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (random >> 33) as usize % below
    };
    for code in [CACHED.to_owned(), EARLY.to_owned(), multiplied(), framed()] {
        let mut library = assemble(&code);
        let file = ElfFile64::<object::Endianness, _>::parse(&*library).unwrap();
        let range = range_of(&file, "malloc");
        let begin = Image::new(&file).unwrap().offset(range.start).unwrap() as usize;
        let original = library.clone();
        for _ in 0..ROUNDS {
            for _ in 0..=next(3) {
                let at = begin + next((range.end - range.start) as usize);
                library[at] = original[at] ^ (1 << next(8));
            }
            let file = ElfFile64::<object::Endianness, _>::parse(&*library).unwrap();
            let image = Image::new(&file).unwrap();
            for arguments in [Arguments::Size, Arguments::Factors] {
                let spots = inside(&image, range.clone(), arguments, LINUX_6_18);
                for spot in spots.unwrap_or_default() {
                    let code = image.code(spot.address).unwrap();
                    assert!(is_emulated(code, LINUX_6_18), "{spot:?}");
                }
            }
            if next(4) == 0 {
                library.clone_from(&original);
            }
        }
    }
}

#[test]
fn garbage_is_not_followed() {
    for code in [
        ".fill 64, 1, 0xff",
        ".fill 64, 1, 0x00",
        "hlt",
        "1: jmp 1b",
        "ret",
    ] {
        assert_eq!(placed(code), None, "{code}");
    }
}

#[test]
fn entries_are_skipped_only_up_to_an_emulated_instruction() {
    let cases = [
        ("push %r12\nret", Some(0)),
        ("test %rdi, %rdi\nje 1f\n1: ret", Some(3)),
        ("endbr64\ntest %rdi, %rdi\nje 1f\n1: ret", Some(7)),
        (
            "endbr64\ncmpb $0, 64(%rip)\nmov %rdi, %rbx\npush %r12\nret",
            Some(14),
        ),
        ("sub $8, %rsp\npush %r12\nret", None),
        ("mov %rsi, %rdi\npush %r12\nret", None),
        ("movq $1, (%rdi)\npush %r12\nret", None),
        ("xor %ebp, %ebp\npush %r12\nret", None),
        ("test %rdi, %rdi\nret", None),
        (
            "test %rdi, %rdi\n1: je 2f\nsub $1, %rdi\njmp 1b\n2: ret",
            None,
        ),
    ];
    for (code, skipped) in cases {
        let library = assemble(code);
        let file = ElfFile64::<object::Endianness, _>::parse(&*library).unwrap();
        let image = Image::new(&file).unwrap();
        let range = range_of(&file, "malloc");
        assert_eq!(
            skipped_at_entry(&image, range, 2, LINUX_6_18),
            skipped,
            "{code}"
        );
    }
}

#[test]
fn arguments_that_nobody_looks_at_may_be_overwritten() {
    let library = assemble("mov %rdi, %rax\nmul %rsi\njo 1f\n1: ret");
    let file = ElfFile64::<object::Endianness, _>::parse(&*library).unwrap();
    let image = Image::new(&file).unwrap();
    let skipped = |arguments| {
        let range = range_of(&file, "malloc");
        skipped_at_entry(&image, range, arguments, LINUX_6_18)
    };
    assert_eq!([1, 2, 3].map(skipped), [Some(6), Some(6), None]);
}

/// The library that this test runs on.
#[test]
fn the_c_library_is_placed_with_one_trap_for_most_calls() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps
        .lines()
        .find(|line| line.ends_with("/libc.so.6"))
        .unwrap();
    let data = std::fs::read(line.split_whitespace().last().unwrap()).unwrap();
    let file = ElfFile64::<object::Endianness, _>::parse(&*data).unwrap();
    let image = Image::new(&file).unwrap();
    for (name, arguments) in [("malloc", Arguments::Size), ("calloc", Arguments::Factors)] {
        let range = range_of(&file, name);
        let spots = inside(&image, range.clone(), arguments, LINUX_6_18).unwrap_or_default();
        // glibc's `calloc` is not such in every version.
        let has_whole = spots.iter().any(|spot| spot.task == Task::Whole);
        assert!(has_whole || name != "malloc", "{spots:?}");
        for spot in &spots {
            let code = image.code(spot.address).unwrap();
            assert!(is_emulated(code, LINUX_6_18), "{spot:?}");
            let inside = range.contains(&spot.address);
            assert!(inside || spot.task == Task::End, "{spot:?} is shared");
        }
    }
}
