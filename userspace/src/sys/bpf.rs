//! The parts of `bpf(2)` that aya 0.14 does not offer: programs with the attach type of
//! multi-uprobe links, and those links. Layouts follow `union bpf_attr` in `linux/bpf.h`; the
//! kernel takes shorter attributes of older layouts and treats what is missing as zero.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_RAW_TRACEPOINT_OPEN: libc::c_int = 17;
const BPF_BTF_LOAD: libc::c_int = 18;
const BPF_MAP_FREEZE: libc::c_int = 22;
const BPF_LINK_CREATE: libc::c_int = 28;

/// `BPF_PROG_TYPE_KPROBE`: what uprobe programs are.
pub const PROGRAM_TYPE_KPROBE: u32 = 2;
/// `BPF_TRACE_UPROBE_MULTI`, Linux 6.6.
pub const ATTACH_TYPE_UPROBE_MULTI: u32 = 48;
/// `BPF_F_SLEEPABLE`, Linux 5.10.
const FLAG_SLEEPABLE: u32 = 1 << 4;
/// `BPF_F_UPROBE_MULTI_RETURN`, Linux 6.6.
const FLAG_UPROBE_MULTI_RETURN: u32 = 1;

/// A program to load.
#[derive(Debug, Default)]
pub struct ProgramLoad<'a> {
    /// Name shown by bpftool; cut to 15 bytes.
    pub name: &'a str,
    /// `BPF_PROG_TYPE_…`.
    pub program_type: u32,
    /// `BPF_TRACE_…`, or 0.
    pub expected_attach_type: u32,
    /// True for a program that may sleep: at uprobes since Linux 6.0.
    pub may_sleep: bool,
    /// Instructions of 8 bytes each.
    pub instructions: &'a [u8],
    /// Licence of the program.
    pub license: &'a CStr,
    /// Type information, with function and line records for it.
    pub btf: Option<ProgramBtf<'a>>,
}

/// Type information of a program.
#[derive(Debug)]
pub struct ProgramBtf<'a> {
    /// The loaded BTF.
    pub fd: BorrowedFd<'a>,
    /// Function records, and the length of each.
    pub functions: (&'a [u8], usize),
    /// Line records, and the length of each.
    pub lines: (&'a [u8], usize),
}

#[repr(C)]
#[derive(Default)]
struct LoadAttr {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
    prog_btf_fd: u32,
    func_info_rec_size: u32,
    func_info: u64,
    func_info_cnt: u32,
    line_info_rec_size: u32,
    line_info: u64,
    line_info_cnt: u32,
    attach_btf_id: u32,
}

/// Loads a program. A non-empty `log` is filled by the verifier.
///
/// # Errors
/// What the kernel returns; `EPERM` without the capabilities, `EACCES` or `EINVAL` when the
/// verifier refuses.
pub fn load_program(program: &ProgramLoad<'_>, log: &mut [u8]) -> io::Result<OwnedFd> {
    const INSTRUCTION: usize = 8;
    let mut attr = LoadAttr {
        prog_type: program.program_type,
        insn_cnt: count(program.instructions.len() / INSTRUCTION)?,
        insns: program.instructions.as_ptr() as u64,
        license: program.license.as_ptr() as u64,
        expected_attach_type: program.expected_attach_type,
        prog_flags: if program.may_sleep { FLAG_SLEEPABLE } else { 0 },
        ..LoadAttr::default()
    };
    let name = program.name.as_bytes();
    let length = name.len().min(attr.prog_name.len() - 1);
    attr.prog_name[..length].copy_from_slice(&name[..length]);
    if let Some(btf) = &program.btf {
        attr.prog_btf_fd = raw(btf.fd);
        (attr.func_info, attr.func_info_cnt, attr.func_info_rec_size) = records(btf.functions)?;
        (attr.line_info, attr.line_info_cnt, attr.line_info_rec_size) = records(btf.lines)?;
    }
    if !log.is_empty() {
        attr.log_level = 1;
        attr.log_size = count(log.len())?;
        attr.log_buf = log.as_mut_ptr() as u64;
    }
    // SAFETY: every address in the attribute is of a slice that outlives the call, with its
    // length beside it; the log is exclusively borrowed.
    unsafe { open_fd(BPF_PROG_LOAD, &attr) }
}

#[repr(C)]
struct BtfLoadAttr {
    btf: u64,
    btf_log_buf: u64,
    btf_size: u32,
    btf_log_size: u32,
    btf_log_level: u32,
}

/// Loads type information.
///
/// # Errors
/// What the kernel returns.
pub fn load_btf(btf: &[u8]) -> io::Result<OwnedFd> {
    let attr = BtfLoadAttr {
        btf: btf.as_ptr() as u64,
        btf_log_buf: 0,
        btf_size: count(btf.len())?,
        btf_log_size: 0,
        btf_log_level: 0,
    };
    // SAFETY: the address and length are those of a slice that outlives the call.
    unsafe { open_fd(BPF_BTF_LOAD, &attr) }
}

#[repr(C)]
struct MapAttr {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
}

/// Makes an array of one word that can be mapped into memory: Linux 5.5.
///
/// # Errors
/// What the kernel returns.
pub fn create_word() -> io::Result<OwnedFd> {
    const ARRAY: u32 = 2;
    const MMAPABLE: u32 = 1 << 10;
    let attr = MapAttr {
        map_type: ARRAY,
        key_size: 4,
        value_size: 8,
        max_entries: 1,
        map_flags: MMAPABLE,
    };
    // SAFETY: there are no addresses in the attribute.
    unsafe { open_fd(BPF_MAP_CREATE, &attr) }
}

#[repr(C)]
struct ElementAttr {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Stores the only element of a map of one element, as the sections of global data are.
///
/// # Errors
/// `EINVAL` when `value` is empty; what the kernel returns.
pub fn store_section(map: BorrowedFd<'_>, value: &[u8]) -> io::Result<()> {
    let key = 0_u32;
    let attr = ElementAttr {
        map_fd: raw(map),
        padding: 0,
        key: (&raw const key) as u64,
        value: value.as_ptr() as u64,
        flags: 0,
    };
    // SAFETY: key and value outlive the call; the map was made with this value size.
    unsafe { bpf(BPF_MAP_UPDATE_ELEM, &attr) }.map(drop)
}

/// Makes a map read-only for user space, so that the verifier may rely on its values.
///
/// # Errors
/// What the kernel returns.
pub fn freeze_map(map: BorrowedFd<'_>) -> io::Result<()> {
    let attr = raw(map);
    // SAFETY: the attribute is the descriptor alone.
    unsafe { bpf(BPF_MAP_FREEZE, &attr) }.map(drop)
}

#[repr(C)]
struct UprobeMultiAttr {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    path: u64,
    offsets: u64,
    ref_ctr_offsets: u64,
    cookies: u64,
    count: u32,
    uprobe_flags: u32,
    pid: u32,
    padding: u32,
}

/// Attaches a program to functions of a file in one process: Linux 6.6.
///
/// `offsets` are bytes from the start of the file, each with a cookie of its own, which the program
/// can ask for; `on_return` attaches to returns instead of entries; `pid` is the process in our pid
/// namespace.
///
/// # Errors
/// What the kernel returns.
pub fn link_uprobes(
    program: BorrowedFd<'_>,
    path: &CStr,
    offsets: &[u64],
    cookies: &[u64],
    on_return: bool,
    pid: u32,
) -> io::Result<OwnedFd> {
    if offsets.len() != cookies.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let attr = UprobeMultiAttr {
        prog_fd: raw(program),
        target_fd: 0,
        attach_type: ATTACH_TYPE_UPROBE_MULTI,
        flags: 0,
        path: path.as_ptr() as u64,
        offsets: offsets.as_ptr() as u64,
        ref_ctr_offsets: 0,
        cookies: cookies.as_ptr() as u64,
        count: count(offsets.len())?,
        uprobe_flags: if on_return {
            FLAG_UPROBE_MULTI_RETURN
        } else {
            0
        },
        pid,
        padding: 0,
    };
    // SAFETY: path, offsets and cookies outlive the call, and there are as many of both as said.
    unsafe { open_fd(BPF_LINK_CREATE, &attr) }
}

#[repr(C)]
struct RawTracepointAttr {
    name: u64,
    prog_fd: u32,
    padding: u32,
}

/// Attaches a program to a raw tracepoint.
///
/// # Errors
/// What the kernel returns.
pub fn open_raw_tracepoint(program: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    let attr = RawTracepointAttr {
        name: name.as_ptr() as u64,
        prog_fd: raw(program),
        padding: 0,
    };
    // SAFETY: the name outlives the call.
    unsafe { open_fd(BPF_RAW_TRACEPOINT_OPEN, &attr) }
}

/// Address, number and length of records that lie one after the other.
fn records((bytes, length): (&[u8], usize)) -> io::Result<(u64, u32, u32)> {
    if length == 0 {
        return Ok((0, 0, 0));
    }
    Ok((
        bytes.as_ptr() as u64,
        count(bytes.len() / length)?,
        count(length)?,
    ))
}

fn count(length: usize) -> io::Result<u32> {
    u32::try_from(length).map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn raw(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

/// A command that returns a descriptor.
///
/// # Safety
/// As for [`bpf`], and the command must return a descriptor that is the caller's to close.
unsafe fn open_fd<T>(command: libc::c_int, attr: &T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise.
    let fd = unsafe { bpf(command, attr) }?;
    // SAFETY: the kernel has just opened it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// # Safety
/// `attr` must be laid out as `command` demands, and addresses in it must be valid for what the
/// command does with them.
unsafe fn bpf<T>(command: libc::c_int, attr: &T) -> io::Result<libc::c_int> {
    // SAFETY: the caller's promise.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, (&raw const *attr), size_of::<T>()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    libc::c_int::try_from(result).map_err(|_| io::ErrorKind::InvalidData.into())
}
