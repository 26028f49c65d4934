//! Writes small ELF images with hand-made call frame information.

/// Address of the first code byte of a synthetic image.
pub(crate) const CODE: u64 = 0x40_1000;
const IMAGE: u64 = 0x40_0000;
const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
const SECTION_HEADER_BYTES: usize = 64;

/// What to put into an image.
#[derive(Clone, Default)]
pub(crate) struct Synthetic {
    pub(crate) code: Vec<u8>,
    pub(crate) eh_frame: Option<Vec<u8>>,
    pub(crate) debug_frame: Option<Vec<u8>>,
    /// Whether to leave out section headers and to point to `.eh_frame` by program header.
    pub(crate) without_sections: bool,
    /// Address of the entry point; 0 for none.
    pub(crate) entry: u64,
}

impl Synthetic {
    /// An image with code and an `.eh_frame`.
    pub(crate) fn eh(code: &[u8], eh_frame: Vec<u8>) -> Self {
        Self {
            code: code.to_vec(),
            eh_frame: Some(eh_frame),
            ..Self::default()
        }
    }

    /// The bytes of the image.
    pub(crate) fn image(&self) -> Vec<u8> {
        let mut image = vec![0; CODE as usize - IMAGE as usize];
        image.extend(&self.code);
        let mut sections = Vec::new();
        let parts = [
            (&self.eh_frame, ".eh_frame"),
            (&self.debug_frame, ".debug_frame"),
        ];
        for (content, name) in parts {
            if let Some(content) = content {
                image.resize(image.len().next_multiple_of(8), 0);
                sections.push((name, image.len(), content.len()));
                image.extend(content);
            }
        }
        let mut program_headers = vec![
            program_header(1, 5, CODE - IMAGE, self.code.len() as u64),
            program_header(1, 4, CODE - IMAGE, image.len() as u64 - (CODE - IMAGE)),
        ];
        if self.without_sections {
            let header = eh_frame_hdr(&mut image, sections[0].1);
            program_headers.push(header);
        }
        let program_header_count = program_headers.len() as u16;
        let headers = program_headers.concat();
        image[HEADER_BYTES..HEADER_BYTES + headers.len()].copy_from_slice(&headers);
        let (table, count) = if self.without_sections {
            (0, 0)
        } else {
            add_sections(&mut image, &sections)
        };
        let header = elf_header(self.entry, program_header_count, table, count);
        image[..HEADER_BYTES].copy_from_slice(&header);
        image
    }
}

fn elf_header(entry: u64, program_headers: u16, section_table: u64, sections: u16) -> Vec<u8> {
    let mut header = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    header.extend([3, 0, 62, 0, 1, 0, 0, 0]);
    header.extend(entry.to_le_bytes());
    header.extend((HEADER_BYTES as u64).to_le_bytes());
    header.extend(section_table.to_le_bytes());
    header.extend([0; 4]);
    for half in [
        HEADER_BYTES as u16,
        PROGRAM_HEADER_BYTES as u16,
        program_headers,
        SECTION_HEADER_BYTES as u16,
        sections,
        sections.saturating_sub(1),
    ] {
        header.extend(half.to_le_bytes());
    }
    header
}

/// A program header whose address is its file offset plus the image's.
pub(crate) fn program_header(kind: u32, flags: u32, offset: u64, size: u64) -> Vec<u8> {
    let mut header = [kind.to_le_bytes(), flags.to_le_bytes()].concat();
    for word in [offset, IMAGE + offset, IMAGE + offset, size, size, 8] {
        header.extend(word.to_le_bytes());
    }
    header
}

/// Appends an `.eh_frame_hdr` without a search table; returns its program header.
fn eh_frame_hdr(image: &mut Vec<u8>, eh_frame: usize) -> Vec<u8> {
    let offset = image.len();
    // Version 1, pointer relative to itself (pcrel sdata4), no count, no table.
    image.extend([1, 0x1b, 0xff, 0xff]);
    let distance = eh_frame as i32 - (offset as i32 + 4);
    image.extend(distance.to_le_bytes());
    program_header(0x6474_e550, 4, offset as u64, 8)
}

/// Appends names and section headers; returns where the headers are and how many.
fn add_sections(image: &mut Vec<u8>, sections: &[(&str, usize, usize)]) -> (u64, u16) {
    let mut names = vec![0];
    let mut headers = vec![vec![0; SECTION_HEADER_BYTES]];
    for (name, offset, size) in sections {
        headers.push(section_header(names.len(), 1, *offset, *size));
        names.extend(name.bytes().chain([0]));
    }
    headers.push(section_header(0, 3, image.len(), names.len()));
    image.extend(names);
    let table = image.len() as u64;
    image.extend(headers.concat());
    (table, headers.len() as u16)
}

fn section_header(name: usize, kind: u32, offset: usize, size: usize) -> Vec<u8> {
    let mut header = [(name as u32).to_le_bytes(), kind.to_le_bytes()].concat();
    let address = IMAGE + offset as u64;
    for word in [2, address, offset as u64, size as u64, 0, 8, 0] {
        header.extend(word.to_le_bytes());
    }
    header
}

/// Call frame instructions, by their names in DWARF 5, 6.4.2.
pub(crate) mod op {
    pub(crate) const RBP: u8 = 6;
    pub(crate) const RSP: u8 = 7;
    pub(crate) const R10: u8 = 10;
    pub(crate) const RA: u8 = 16;

    pub(crate) fn advance(bytes: u8) -> Vec<u8> {
        vec![0x40 | bytes]
    }
    pub(crate) fn def_cfa(register: u8, offset: u64) -> Vec<u8> {
        [vec![0x0c, register], uleb(offset)].concat()
    }
    pub(crate) fn def_cfa_sf(register: u8, factored: u8) -> Vec<u8> {
        vec![0x12, register, factored]
    }
    pub(crate) fn def_cfa_offset(offset: u64) -> Vec<u8> {
        [vec![0x0e], uleb(offset)].concat()
    }
    /// Saved at CFA - 8 * `slots`.
    pub(crate) fn offset(register: u8, slots: u8) -> Vec<u8> {
        vec![0x80 | register, slots]
    }
    pub(crate) fn undefined(register: u8) -> Vec<u8> {
        vec![0x07, register]
    }
    pub(crate) fn same_value(register: u8) -> Vec<u8> {
        vec![0x08, register]
    }
    pub(crate) fn in_register(register: u8, place: u8) -> Vec<u8> {
        vec![0x09, register, place]
    }
    pub(crate) fn cfa_expression(expression: &[u8]) -> Vec<u8> {
        [&[0x0f, expression.len() as u8], expression].concat()
    }
    pub(crate) fn expression(register: u8, expression: &[u8]) -> Vec<u8> {
        [&[0x10, register, expression.len() as u8], expression].concat()
    }

    pub(crate) fn uleb(mut value: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
    }
}

/// Writes `.eh_frame` or `.debug_frame` entries with absolute 8-byte addresses.
pub(crate) struct Frames {
    bytes: Vec<u8>,
    cie: usize,
    signal: bool,
    debug: bool,
}

impl Frames {
    /// A section that begins with the usual CIE: CFA = rsp + 8, return address at CFA - 8.
    pub(crate) fn eh() -> Self {
        Self::with_cie(
            false,
            false,
            &[op::def_cfa(op::RSP, 8), op::offset(op::RA, 1)].concat(),
        )
    }

    /// As [`Frames::eh`] in the format of `.debug_frame`.
    pub(crate) fn debug() -> Self {
        Self::with_cie(
            true,
            false,
            &[op::def_cfa(op::RSP, 8), op::offset(op::RA, 1)].concat(),
        )
    }

    /// A section that begins with a CIE for signal frames, without rules.
    pub(crate) fn signal() -> Self {
        Self::with_cie(false, true, &[])
    }

    /// A section that begins with the given CIE.
    pub(crate) fn with_cie(debug: bool, signal: bool, instructions: &[u8]) -> Self {
        let mut frames = Self {
            bytes: Vec::new(),
            cie: 0,
            signal,
            debug,
        };
        frames.cie(instructions);
        frames
    }

    /// Adds a CIE, which following FDEs refer to.
    pub(crate) fn cie(&mut self, instructions: &[u8]) {
        self.cie = self.bytes.len();
        let augmentation: &[u8] = if self.signal { b"zS\0" } else { b"\0" };
        let version = if self.debug { 3 } else { 1 };
        // Code alignment 1, data alignment -8, return address in column 16.
        let mut body = [&[version], augmentation, &[1, 0x78, 16]].concat();
        if self.signal {
            body.push(0);
        }
        body.extend(instructions);
        let id = if self.debug { u32::MAX } else { 0 };
        self.entry(id, &body);
    }

    /// Adds an FDE for `size` bytes of code from `CODE + start` on.
    pub(crate) fn fde(mut self, start: u64, size: u64, instructions: &[Vec<u8>]) -> Self {
        let mut body = [(CODE.wrapping_add(start)).to_le_bytes(), size.to_le_bytes()].concat();
        if self.signal {
            body.push(0);
        }
        body.extend(instructions.concat());
        let here = self.bytes.len() + 4;
        let id = if self.debug {
            self.cie
        } else {
            here - self.cie
        };
        self.entry(id as u32, &body);
        self
    }

    /// Adds raw bytes.
    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend(bytes);
        self
    }

    fn entry(&mut self, id: u32, body: &[u8]) {
        let size = (4 + body.len()).next_multiple_of(8) - 4;
        self.bytes.extend((size as u32 + 4).to_le_bytes());
        self.bytes.extend(id.to_le_bytes());
        self.bytes.extend(body);
        self.bytes.resize(self.bytes.len() + size - body.len(), 0);
    }

    /// The section's bytes.
    pub(crate) fn finish(self) -> Vec<u8> {
        self.bytes
    }
}
