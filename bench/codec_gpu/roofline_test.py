#!/usr/bin/env python3
"""Tests that roofline.py finds a kernel's loop, predicts by the binding limit and refuses growth, and that report.py adds
measurements."""

import sys

sys.dont_write_bytecode = True
from report import kernel_of, lines_of
from roofline import ALLOWED, PIPES, UNALIGNED, counted, grown, has_exact_products, is_fused, kernels_of, parsed, predicted, shown

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

(name, (code, labels)), = kernels_of(LISTING).items()
assert name == "kernel" and len(code) == 14 and labels == {".L_x_1": 1, ".L_x_3": 7, ".L_x_2": 10}
row = counted(name, code, labels, registers=64)[""]
# The loop has eight instructions, 32 bytes of loads and 8 of stores. The path by .L_x_2 is longer.
assert row["issue"] == round(8 / 40, 3), row
assert row["loads"] == "2 x 128" and row["stores"] == "1 x 64" and row["read"] == 0.8
assert row["ALU"] == row["FMA"] == row["XU"] == round(1 / 40, 3) and row["shuffles"] == 0
assert row["LSU"] == round((4 + 4 + 2) / 40, 3)
assert row["warps"] == 32 and row["in_flight_kib"] == 32.0

# The unaligned path loads equally many bytes by words, and has equal stores.
UNALIGNED_LISTING = LISTING.replace("        /*0010*/", "        /*0008*/              @!P3 BRA `(.L_x_4) ;\n        /*0010*/").replace(
    "        /*0030*/", ".L_x_5:\n        /*0030*/") + ".L_x_4:\n" + "        /*00e0*/    LDG.E R4, desc[UR4][R2.64] ;\n" * 8 + \
    "        /*00f0*/                   BRA `(.L_x_5) ;\n"
(name, (code, labels)), = kernels_of(UNALIGNED_LISTING).items()
rows = counted(name, code, labels, registers=64)
assert rows[""] == {**row, "issue": round(9 / 40, 3)}, rows
assert rows[UNALIGNED]["issue"] == round((7 + 8 + 1) / 40, 3) and rows[UNALIGNED]["loads"] == "8 x 32", rows
assert rows[UNALIGNED]["in_flight_kib"] == row["in_flight_kib"] and rows[UNALIGNED]["read"] == 0.8
assert list(counted("sum_source", code, labels, registers=64)) == [""]
# Loads of constants are not the LSU's.
(name, (code, labels)), = kernels_of(LISTING.replace("FADD R4, R4, R8", "LDC.64 R4, c[0x0][0x210]")).items()
assert counted(name, code, labels, registers=64)[""]["LSU"] == row["LSU"]
# If one path has both under opposite predicates, all are issued and half of them load.
PREDICATED_LISTING = LISTING.replace("                   LDG", "             @P2   LDG").replace(
    "        /*0030*/", "        /*0028*/     @!P2 LDG.E R4, desc[UR4][R2.64] ;\n" * 8 + "        /*0030*/")
(name, (code, labels)), = kernels_of(PREDICATED_LISTING).items()
rows = counted(name, code, labels, registers=64)
assert rows[""]["loads"] == "2 x 128" and rows[UNALIGNED]["loads"] == "8 x 32", rows
assert rows[""]["issue"] == rows[UNALIGNED]["issue"] == round((8 + 8) / 40, 3), rows
assert rows[""]["in_flight_kib"] == rows[UNALIGNED]["in_flight_kib"] == 32.0, rows
# A path without stores is not the loop, even with wider loads.
STORELESS_LISTING = LISTING.replace(".128", ".64") + ".L_x_9:\n        /*0100*/    LDG.E.128 R4, desc[UR4][R2.64] ;\n" \
    "        /*0110*/    @P4 BRA `(.L_x_9) ;\n        /*0120*/    EXIT ;\n"
(name, (code, labels)), = kernels_of(STORELESS_LISTING).items()
assert counted(name, code, labels, registers=64)[""]["loads"] == "2 x 64"
# Products that are fused with a sum differ from the host's bits.
(_, (code, _)), = kernels_of(LISTING.replace("FADD R4, R4, R8", "FFMA2 R4, R4.F32x2.HI_LO, R8.F32, RZ.F32")).items()
assert not is_fused(code)
(_, (code, _)), = kernels_of(LISTING.replace("FADD R4, R4, R8", "FFMA2 R4, R4.F32x2.HI_LO, R8.F32, R6.F32x2.HI_LO")).items()
assert is_fused(code)
assert has_exact_products("sum of 4 int4:128:bfloat16 to int4:128") and has_exact_products("decode of 1 int2:64:signed:half:h32 to float")
assert not has_exact_products("sum of 4 int4:128 to int4:128:bfloat16") and not has_exact_products("decode of 1 int8:256 to half")

# A kernel that only moves bytes is bound by memory; with ten times the instructions, by them, in proportion.
light = {"read": 0.5, "in_flight_kib": 64, "issue": 1.0, **{pipe: 0.1 for pipe in PIPES}}
fraction, binds = predicted(light, "H200")
assert binds == "memory" and 0.92 < fraction <= 0.93
heavy = {**light, "issue": 24.0}
assert predicted(heavy, "H200")[1] == "issue" and 0.22 < predicted(heavy, "H200")[0] < 0.24
assert predicted({**light, "XU": 3.0}, "H200")[1] == "XU"
# Half of 4.3 TB/s needs 11.1 KiB in flight.
assert predicted({**light, "in_flight_kib": 4}, "H200")[1] == "in flight"


assert parsed("a<b<c, 1> , d*>, e")[:2] == ["a", ["b", ["c"], ["1"]]]
assert shown(parsed("hadamard<block_integer<4, 128, signed_absmax, half>, 32>")) == "int4:128:signed:half:h32"
assert shown(parsed("sum_source<lloyd_max<2, 128, unbiased>, 0>")) == "any lloyd_max<2, 128, unbiased>"


def table(**changes):
    return {"90": {"kernel": {"issue": 4.0, "ALU": 1.0, "FMA": 1.0, "XU": 0.0, "shuffles": 0.0, "LSU": 1.0, "warps": 24, "in_flight_kib": 32.0,
                              **changes}}}


assert grown(table(), table()) == []
assert grown(table(issue=4.0 * ALLOWED), table()) == []
assert grown(table(issue=4.15), table()) == ["sm_90, kernel: issue is 4.15 for a byte, and was 4.0"]
assert grown(table(XU=0.1), table()) == ["sm_90, kernel: XU is 0.1 for a byte, and was 0.0"]
assert grown(table(warps=16), table()) == ["sm_90, kernel: 16 warps fit, and 24 did"]
assert grown(table(in_flight_kib=16.0), table()) == ["sm_90, kernel: 16.0 KiB are in flight, and 32.0 were"]
assert grown({"90": {}}, table()) == ["sm_90, kernel: in the table and not in the code"]
assert grown(table(), {"90": {}}) == ["sm_90, kernel: in the code and not in the table"]

assert kernel_of({"quantizer": "int8:256", "kernel": "encode", "element": "bf16"}) == "encode bfloat16 to int8:256"
assert kernel_of({"quantizer": "int8:256", "kernel": "reorder_encode", "element": "bf16"}) is None
assert kernel_of({"quantizer": "q", "kernel": "reduce_decode_8", "element": "fp16"}) == "decode of 8 q to half"
measured = {"device": {"name": "NVIDIA H200", "multiprocessors": 132, "cuda_runtime_version": 13000}, "complete": True,
            "rows": [{"quantizer": "q", "kernel": kernel, "element": "bf16", "tensor_bytes": megabytes << 20,
                      "fraction_of_copy": 0.465} for kernel in ("decode", "encode") for megabytes in (1, 4)]}
page = list(lines_of(measured, {"kernels": {"90": {"decode of 1 q to bfloat16": {**light, "stores": "1 x 64"}}}}))
assert "| q | decode | 0.47 | - | - | 0.93 | 0.50 |" in page, page
assert "| q | encode | 0.47 | - | - | - | - |" in page, page
assert page[-1] == "| q | encode | 0.47 | 0.47 |", page
