// NEON instructions that Go's assembler has no name for (Arm ARM DDI 0487, C7.2). Operands are numbers of vector
// registers, in Go's order: second source, first source, destination. A test assembles the comments, which are GNU
// syntax, and compares.

#define FADD_S4(m, n, d) WORD $(0x4e20d400 | (m)<<16 | (n)<<5 | (d)) // fadd vD.4s, vN.4s, vM.4s
#define FADD_D2(m, n, d) WORD $(0x4e60d400 | (m)<<16 | (n)<<5 | (d)) // fadd vD.2d, vN.2d, vM.2d
#define FSUB_S4(m, n, d) WORD $(0x4ea0d400 | (m)<<16 | (n)<<5 | (d)) // fsub vD.4s, vN.4s, vM.4s
#define FSUB_D2(m, n, d) WORD $(0x4ee0d400 | (m)<<16 | (n)<<5 | (d)) // fsub vD.2d, vN.2d, vM.2d
#define FMUL_D2(m, n, d) WORD $(0x6e60dc00 | (m)<<16 | (n)<<5 | (d)) // fmul vD.2d, vN.2d, vM.2d
#define FMAX_S4(m, n, d) WORD $(0x4e20f400 | (m)<<16 | (n)<<5 | (d)) // fmax vD.4s, vN.4s, vM.4s
#define FMIN_S4(m, n, d) WORD $(0x4ea0f400 | (m)<<16 | (n)<<5 | (d)) // fmin vD.4s, vN.4s, vM.4s

// FMUL_S and FMUL_D multiply by the lowest element of the second source.
#define FMUL_S(m, n, d) WORD $(0x4f809000 | (m)<<16 | (n)<<5 | (d)) // fmul vD.4s, vN.4s, vM.s[0]
#define FMUL_D(m, n, d) WORD $(0x4fc09000 | (m)<<16 | (n)<<5 | (d)) // fmul vD.2d, vN.2d, vM.d[0]

// FCVTL and FCVTL2 convert the lower and the upper two f32 to float64.
#define FCVTL(n, d) WORD $(0x0e617800 | (n)<<5 | (d)) // fcvtl vD.2d, vN.2s
#define FCVTL2(n, d) WORD $(0x4e617800 | (n)<<5 | (d)) // fcvtl2 vD.2d, vN.4s

#define UMAXV_S4(n, d) WORD $(0x6eb0a800 | (n)<<5 | (d)) // umaxv sD, vN.4s
