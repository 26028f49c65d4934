//! Which instructions the kernel emulates when a probe stands on them.
//!
//! All others are copied and single-stepped, which means a second trap: five times dearer
//! (measured on Linux 6.18: 5,300 against 950 ns). This is about cost alone: a wrong answer makes
//! a probe dear, not wrong.
//!
//! | instruction | x86-64, Linux | source |
//! |---|---|---|
//! | `jmp`, `call` to a relative address, `jcc`, one-byte `nop` | 3.14 | `branch_setup_xol_ops` in `arch/x86/kernel/uprobes.c` |
//! | `push` of a general register | 4.20 | `push_setup_xol_ops` there |
//! | five-byte `nop` | 6.18 | `can_optimize` there: it becomes a call |
//! | `nop` of other lengths, `ret`, `endbr64`, `mov`, `test`, `sub`, `lea` | none | a program that moves the instruction pointer can do for them from 7.x |
//!
//! With an operand-size prefix (0x66), none of the branches is emulated, in any version.

/// Major and minor number of a kernel.
pub type KernelVersion = (u32, u32);

/// First kernel that turns five-byte `nop`s into calls.
const NOP5_SINCE: KernelVersion = (6, 18);

/// True if the kernel emulates the instruction at the begin of `code`.
#[must_use]
pub fn is_emulated(code: &[u8], kernel: KernelVersion) -> bool {
    const NOP5: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];
    let push_or_jump = matches!(
        *code,
        [0x50..=0x57 | 0x70..=0x7f | 0x90 | 0xe8 | 0xe9 | 0xeb, ..]
    );
    let of_two_bytes = matches!(*code, [0x41, 0x50..=0x57, ..] | [0x0f, 0x80..=0x8f, ..]);
    push_or_jump || of_two_bytes || (kernel >= NOP5_SINCE && code.starts_with(&NOP5))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_followed() {
        let emulated: [&[u8]; 9] = [
            &[0x55],
            &[0x41, 0x54],
            &[0x74, 0x10],
            &[0x0f, 0x84, 1, 2, 3, 4],
            &[0x90],
            &[0xe8, 1, 2, 3, 4],
            &[0xe9, 1, 2, 3, 4],
            &[0xeb, 5],
            &[0x7f, 5],
        ];
        for code in emulated {
            assert!(is_emulated(code, (5, 8)), "{code:x?}");
        }
        let stepped: [&[u8]; 7] = [
            &[0xf3, 0x0f, 0x1e, 0xfa],
            &[0x48, 0x85, 0xff],
            &[0xc3],
            &[0x5b],
            &[0x66, 0x90],
            &[0x0f, 0x1f, 0x40, 0x00],
            &[],
        ];
        for code in stepped {
            assert!(!is_emulated(code, (7, 2)), "{code:x?}");
        }
    }

    #[test]
    fn long_nops_are_cheap_from_6_18_on() {
        let nop = [0x0f, 0x1f, 0x44, 0x00, 0x00];
        assert!(!is_emulated(&nop, (6, 12)));
        assert!(is_emulated(&nop, (6, 18)));
    }
}
