//! Uprobes as perf events, one a probe: the only way before Linux 6.6.

use std::{
    ffi::CStr,
    fs, io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

/// Where the kernel says which perf event type uprobes are, and which bit asks for returns.
const PMU: &str = "/sys/bus/event_source/devices/uprobe";
const PERF_EVENT_IOC_SET_BPF: libc::c_ulong = 0x4004_2408;
const PERF_EVENT_IOC_ENABLE: libc::c_ulong = 0x2400;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
const ANY_CPU: libc::c_int = -1;
const NO_GROUP: libc::c_int = -1;

/// `struct perf_event_attr` up to `config2`, in the layout of `PERF_ATTR_SIZE_VER1`.
#[repr(C)]
#[derive(Default)]
struct EventAttr {
    event_type: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
}

/// Attaches a program to one function of a file in one process.
///
/// `offset` is in bytes from the start of the file; `on_return` attaches to the return instead of
/// the entry; `pid` is the process in our pid namespace. The probe lives as long as the
/// descriptor.
///
/// # Errors
/// What the kernel returns, or what reading the event type does.
pub fn attach_uprobe(
    program: BorrowedFd<'_>,
    path: &CStr,
    offset: u64,
    on_return: bool,
    pid: u32,
) -> io::Result<OwnedFd> {
    let attr = EventAttr {
        event_type: event_type()?,
        size: size_of::<EventAttr>() as u32,
        config: if on_return { 1 << return_bit()? } else { 0 },
        sample_period: 1,
        wakeup_events: 1,
        config1: path.as_ptr() as u64,
        config2: offset,
        ..EventAttr::default()
    };
    // SAFETY: the attribute and the path in it outlive the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attr,
            pid,
            ANY_CPU,
            NO_GROUP,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let fd = libc::c_int::try_from(fd).map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: the kernel has just opened it for us.
    let event = unsafe { OwnedFd::from_raw_fd(fd) };
    control(&event, PERF_EVENT_IOC_SET_BPF, program.as_raw_fd())?;
    control(&event, PERF_EVENT_IOC_ENABLE, 0)?;
    Ok(event)
}

fn control(event: &OwnedFd, request: libc::c_ulong, argument: libc::c_int) -> io::Result<()> {
    // SAFETY: both requests take an integer.
    match unsafe { libc::ioctl(event.as_raw_fd(), request, argument) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn event_type() -> io::Result<u32> {
    read_number(&format!("{PMU}/type"), "")
}

fn return_bit() -> io::Result<u32> {
    read_number(&format!("{PMU}/format/retprobe"), "config:")
}

fn read_number(path: &str, prefix: &str) -> io::Result<u32> {
    let text = fs::read_to_string(path)?;
    let digits = text.trim().strip_prefix(prefix);
    digits
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{path}: unexpected content {text:?}"),
            )
        })
}
