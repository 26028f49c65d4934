# A process without any library: says "ready", waits for a byte, ends with
# status 0.
    .globl _start
    .text
_start:
    mov $1, %eax
    mov $1, %edi
    lea message(%rip), %rsi
    mov $6, %edx
    syscall
    xor %eax, %eax
    xor %edi, %edi
    lea -8(%rsp), %rsi
    mov $1, %edx
    syscall
    mov $60, %eax
    xor %edi, %edi
    syscall

    .section .rodata
message:
    .ascii "ready\n"
    .section .note.GNU-stack,"",@progbits
