//! Where the kernel's structures have the fields that the programs read, in bytes from their
//! beginning. The recorder takes them from the running kernel's type information.

/// Offsets of fields.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelLayout {
    /// `vm_area_struct.vm_start`
    pub vma_start: u32,
    /// `vm_area_struct.vm_end`
    pub vma_end: u32,
    /// `vm_area_struct.vm_pgoff`
    pub vma_pgoff: u32,
    /// `vm_area_struct.vm_flags`
    pub vma_flags: u32,
    /// `vm_area_struct.vm_file`
    pub vma_file: u32,
    /// `file.f_inode`
    pub file_inode: u32,
    /// `inode.i_ino`
    pub inode_number: u32,
    /// `inode.i_sb`
    pub inode_super_block: u32,
    /// `super_block.s_dev`
    pub super_block_device: u32,
    /// `task_struct.utask`
    pub task_utask: u32,
    /// `uprobe_task.return_instances`
    pub utask_return_instances: u32,
    /// `return_instance.stack`
    pub instance_stack: u32,
    /// `return_instance.orig_ret_vaddr`
    pub instance_original: u32,
    /// `return_instance.next`
    pub instance_next: u32,
    /// 1 if the fields of tasks and return instances are known.
    pub has_return_instances: u32,
}

impl KernelLayout {
    /// Number of fields.
    pub const FIELDS: usize = size_of::<Self>() / size_of::<u32>();

    /// All fields in order.
    #[must_use]
    pub const fn fields(&self) -> [u32; Self::FIELDS] {
        [
            self.vma_start,
            self.vma_end,
            self.vma_pgoff,
            self.vma_flags,
            self.vma_file,
            self.file_inode,
            self.inode_number,
            self.inode_super_block,
            self.super_block_device,
            self.task_utask,
            self.utask_return_instances,
            self.instance_stack,
            self.instance_original,
            self.instance_next,
            self.has_return_instances,
        ]
    }
}
