#!/usr/bin/env python3
"""Tests that roofline.py finds a kernel's main way, predicts by the binding limit and refuses growth, that its constants fit what
was measured, and that report.py adds measurements."""

import json
import sys

sys.dont_write_bytecode = True
from report import lines_of
from roofline import (ALLOWED, PIPES, RESULTS, comparison, counted, grown, has_exact_products, is_fused, kernel_of, kernels_of,
                      predicted, renamed, resident_warps, rms)

# A main loop with a slow way out of line.
LISTING = """
.section .text.kernel,"ax",@progbits
.text.kernel:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/                   LDG.E.128.CONSTANT R4, desc[UR4][R2.64] ;
        /*0020*/                   LDG.E.128.CONSTANT R8, desc[UR4][R2.64+0x10] ;
        /*0030*/                   IADD3 R2, P0, R2, 0x20, RZ ;
        /*0040*/                   FADD R4, R4, R8 ;
        /*0050*/              @P1 BRA `(.L_x_2) ;
        /*0060*/                   I2F R5, R5 ;
.L_x_3:
        /*0070*/                   STG.E.64 desc[UR4][R12.64], R4 ;
        /*0080*/              @!P0 BRA `(.L_x_1) ;
        /*0090*/                   EXIT ;
.L_x_2:
        /*00a0*/                   SHFL.BFLY PT, R5, R5, 0x1, 0x1f ;
        /*00b0*/                   FADD R5, R5, R5 ;
        /*00c0*/                   FADD R5, R5, R5 ;
        /*00d0*/                   BRA `(.L_x_3) ;
"""


def row_of(listing, name="kernel"):
    (_, (code, labels)), = kernels_of(listing).items()
    return counted(name, code, labels, registers=64)


def planted(*lines, before="        /*0050*/"):
    """LISTING with more instructions on its main way."""
    return LISTING.replace(before, "".join(f"        /*0058*/    {line} ;\n" if line[0] != "." else f"{line}:\n" for line in lines) + before)


(name, (code, labels)), = kernels_of(LISTING).items()
assert name == "kernel" and len(code) == 14 and labels == {".L_x_1": 1, ".L_x_3": 7, ".L_x_2": 10}
row = row_of(LISTING)
# The loop has eight instructions, 32 bytes of loads and 8 of stores. The path by .L_x_2 is longer.
assert row["issue"] == round(8 / 40, 3) and row["loops"] == 0, row
assert row["loads"] == "2 x 128" and row["stores"] == "1 x 64" and row["read"] == 0.8
assert row["ALU"] == row["FMA"] == row["XU"] == round(1 / 40, 3) and row["shuffles"] == 0
assert row["LSU"] == round((4 + 4 + 2) / 40, 3)
assert row["warps"] == 32 and row["in_flight_kib"] == 32.0

# The way of a finite block goes through its division, however the compiler asks whether it is finite, and past a slow division.
DIVISION = ["FCHK P2, R4, 7", "@!P2 BRA `(.L_x_5)", "CALL.REL.NOINC `(slow)", ".L_x_5"]
for question in (["ISETP.GT.U32.AND P3, PT, R4, 0x7f7fffff, PT", "@P3 BRA `(.L_x_4)"],
                 ["FSETP.GEU.AND P3, PT, |R4|, +INF, PT", "@P3 BRA `(.L_x_4)"],
                 ["FSETP.GE.AND P3, PT, R4, 7.8886090522101180541e-31, PT", "FSETP.LT.AND P3, PT, R4, 2.5353012004564588029e+30, P3",
                  "@!P3 BRA `(.L_x_4)"]):
    finite = row_of(planted(*question, *DIVISION, *["FADD R5, R5, R5"] * 9, ".L_x_4"))
    assert finite["issue"] == round((8 + len(question) + 2 + 9) / 40, 3), finite
# A divisor of 1, the value as which every value counts, divides nothing; nor do others that may be skipped.
for question in ("FSETP.NEU.AND P3, PT, R9, 1, PT", "ISETP.NE.AND P3, PT, R9, 0x2, PT"):
    assert row_of(planted(question, "@!P3 BRA `(.L_x_4)", *DIVISION, ".L_x_4"))["issue"] == round(10 / 40, 3)

# Planted faults: 50 instructions in the division, and loops that should be unrolled, which turn as often as they do.
quick = row_of(planted("ISETP.GT.U32.AND P3, PT, R4, 0x7f7fffff, PT", "@P3 BRA `(.L_x_4)", *DIVISION, ".L_x_4"))
slow = row_of(planted("ISETP.GT.U32.AND P3, PT, R4, 0x7f7fffff, PT", "@P3 BRA `(.L_x_4)", *DIVISION, *["FMUL R5, R5, R5"] * 50, ".L_x_4"))
assert [text.split(" is ")[0] for text in grown({"k": slow}, {"k": quick})] == ["k: FMA", "k: issue"]
LOOPS = {
    "at its end": (["MOV R9, 0x0", ".L_x_6", "FADD R5, R5, R5", "VIADD R9, R9, 0x1", "ISETP.NE.AND P3, PT, R9, 0x4, PT", "@P3 BRA `(.L_x_6)"],
                   1 + 4 * 4),
    "unconditional": (["IMAD.MOV.U32 R9, RZ, RZ, RZ", ".L_x_6", "ISETP.NE.AND P3, PT, R9, 0x4, PT", "@!P3 BRA `(.L_x_7)", "FADD R5, R5, R5",
                       "VIADD R9, R9, 0x1", "BRA `(.L_x_6)", ".L_x_7"], 1 + 4 * 5 + 2),
    "without a known end": ([".L_x_6", "ISETP.NE.AND P3, PT, R9, R8, PT", "@!P3 BRA `(.L_x_7)", "BRA `(.L_x_6)", ".L_x_7"], 2)}
for kind, (lines, executed) in LOOPS.items():
    rolled = row_of(planted(*lines))
    assert rolled["issue"] == round((8 + executed) / 40, 3) and rolled["loops"] == 1, (kind, rolled)
    assert "k: 1 loops are on the main way, and 0 were" in grown({"k": rolled}, {"k": row}), kind
# A loop on a slow way is none on the main way.
assert row_of(planted(".L_x_6", "@P4 BRA `(.L_x_6)", before="        /*00b0*/")) == row

# Loads of constants are not the LSU's. Copies to shared memory are, and are of codes; one group of them is waited for, another flies.
assert row_of(LISTING.replace("FADD R4, R4, R8", "LDC.64 R4, c[0x0][0x210]"))["LSU"] == row["LSU"]
copies = planted("LDGDEPBAR", "DEPBAR.LE SB0, 0x1", "LDS.128 R8, [R7]").replace("LDG.E.128.CONSTANT R4", "LDGSTS.E.BYPASS.128 [R7]").replace(
    "LDG.E.128.CONSTANT R8", "LDGSTS.E.BYPASS.128 [R7+0x10]")
asynchronous = row_of(copies, "sum_source")
assert asynchronous["loads"] == "2 x 128" and asynchronous["LSU"] == round((4 + 4 + 2 + 4) / 40, 3) and asynchronous["in_flight_kib"] == 64.0, asynchronous
# If one path has both under opposite predicates, all are issued and half of them load.
PREDICATED_LISTING = LISTING.replace("                   LDG", "             @P2   LDG").replace(
    "        /*0030*/", "        /*0028*/     @!P2 LDG.E R4, desc[UR4][R2.64] ;\n" * 8 + "        /*0030*/")
predicated = row_of(PREDICATED_LISTING)
assert predicated == {**row, "issue": round((8 + 8) / 40, 3), "LSU": round((4 + 4 + 2 + 8) / 40, 3)}, predicated
# A path without stores is not the loop, even with wider loads.
STORELESS_LISTING = LISTING.replace(".128", ".64") + ".L_x_9:\n        /*0100*/    LDG.E.128 R4, desc[UR4][R2.64] ;\n" \
    "        /*0110*/    @P4 BRA `(.L_x_9) ;\n        /*0120*/    EXIT ;\n"
assert row_of(STORELESS_LISTING)["loads"] == "2 x 64"
# Products that are fused with a sum differ from the host's bits.
(_, (code, _)), = kernels_of(LISTING.replace("FADD R4, R4, R8", "FFMA2 R4, R4.F32x2.HI_LO, R8.F32, RZ.F32")).items()
assert not is_fused(code)
(_, (code, _)), = kernels_of(LISTING.replace("FADD R4, R4, R8", "FFMA2 R4, R4.F32x2.HI_LO, R8.F32, R6.F32x2.HI_LO")).items()
assert is_fused(code)
assert has_exact_products("sum of 4 int4:128:bf16 to int4:128") and has_exact_products("decode of 1 int2:64:signed:fp16:h32 to fp32")
assert not has_exact_products("sum of 4 int4:128 to int4:128:bf16") and not has_exact_products("decode of 1 int8:256 to fp16")

assert resident_warps(64) == 32 and resident_warps(64, 100 << 10) == 16

# A kernel that only moves bytes is bound by memory; with ten times the instructions, by them, in proportion.
light = {"read": 0.5, "in_flight_kib": 256, "issue": 1.0, "stores": "1 x 64", **{pipe: 0.1 for pipe in PIPES}}
fraction, binds = predicted(light, "H200")
assert binds == "memory" and 0.93 < fraction <= 0.96, fraction
heavy = {**light, "issue": 24.0}
assert predicted(heavy, "H200")[1] == "issue" and 1.9 < predicted(heavy, "H200")[0] / predicted({**light, "issue": 48.0}, "H200")[0] <= 2
assert predicted({**light, "XU": 3.0}, "H200")[1] == "XU"
assert predicted({**light, "in_flight_kib": 4}, "H200")[1] == "in flight"


def full_name(kernel):
    return renamed(f"void zeropp::detail::run<zeropp::detail::{kernel} >(zeropp::detail::{kernel})")


Q = "zeropp::block_integer<4, 128, zeropp::signed_absmax, zeropp::half>"
assert full_name(f"encode_kernel<zeropp::hadamard<{Q}, 32>, zeropp::detail::sum_source<zeropp::lloyd_max<2, 128, zeropp::unbiased>, 0>, "
                 "zeropp::detail::kernel_residuals<zeropp::none>, zeropp::list_slices>") == \
    "sum of any lloyd2:128:unbiased to int4:128:signed:fp16:h32, of a list"
assert full_name(f"encode_kernel<{Q}, zeropp::detail::difference_source<zeropp::detail::tensor_source<float, zeropp::tensor_table<float const> >, "
                 "zeropp::detail::tensor_source<float, float const*> >, zeropp::detail::kernel_residuals<zeropp::feedback<zeropp::block_integer<8, "
                 "128, zeropp::symmetric, float> > >, zeropp::packed_slices<zeropp::slices> >") == \
    "encode fp32 less fp32 to int4:128:signed:fp16, residuals in int8:128, packed"
assert full_name("decode_kernel<zeropp::detail::sum_source<zeropp::cast_to<zeropp::bfloat16>, 8>, float, zeropp::slices, float*>") == \
    "decode of 8 bf16 to fp32"


def table(**changes):
    return {"kernel": {"issue": 4.0, "ALU": 1.0, "FMA": 1.0, "XU": 0.0, "shuffles": 0.0, "LSU": 1.0, "warps": 24, "loops": 0,
                       "in_flight_kib": 32.0, **changes}}


assert grown(table(), table()) == []
assert grown(table(issue=4.0 * ALLOWED), table()) == []
assert grown(table(issue=4.15), table()) == ["kernel: issue is 4.15 for a byte, and was 4.0"]
assert grown(table(XU=0.1), table()) == ["kernel: XU is 0.1 for a byte, and was 0.0"]
assert grown(table(warps=16), table()) == ["kernel: 16 warps fit, and 24 did"]
assert grown(table(in_flight_kib=16.0), table()) == ["kernel: 16.0 KiB are in flight, and 32.0 were"]
assert grown({}, table()) == ["kernel: in the table and not in the code"]
assert grown(table(), {}) == ["kernel: in the code and not in the table"]

assert kernel_of({"quantizer": "int8:256", "kernel": "encode", "element": "bf16"}) == "encode bf16 to int8:256"
assert kernel_of({"quantizer": "int8:256", "kernel": "reorder_encode", "element": "bf16"}) is None
assert kernel_of({"quantizer": "q", "kernel": "reduce_decode_8", "element": "fp16"}) == "decode of 8 q to fp16"
assert kernel_of({"quantizer": "q:h32", "kernel": "reduce_encode_2", "element": "bf16"}) == "sum of 2 q to q"
measured = {"device": {"name": "NVIDIA H200", "multiprocessors": 132, "cuda_runtime_version": 13000}, "complete": True,
            "rows": [{"quantizer": "q", "kernel": kernel, "element": "bf16", "tensor_bytes": megabytes << 20,
                      "fraction_of_copy": 0.48} for kernel in ("decode", "encode") for megabytes in (1, 4)]}
page = list(lines_of(measured, {"kernels": {"decode of 1 q to bf16": light}}))
assert "| q | decode | 0.48 | - | - | 0.96 | 0.50 |" in page, page
assert "| q | encode | 0.48 | - | - | - | - |" in page, page
assert page[-1] == "| q | encode | 0.48 | 0.48 |", page
old = {**measured, "rows": [{**measured["rows"][1], "fraction_of_copy": 0.24}]}
page = list(lines_of(measured, {"kernels": {}}, old))
assert "| q | decode | 0.48 | - | - | - | - | 0.24 | 2.00 |" in page and "| q | encode | 0.48 | - | - | - | - | - | - |" in page, page

# The model fits what was measured.
error, rows = rms(comparison(json.loads((RESULTS / "roofline.json").read_text())["measured"], 256, 1024))
assert error <= 0.04 and rows >= 100, (error, rows)
