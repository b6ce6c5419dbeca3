// Teams. A row of an operation is computed by a team: one thread on a CPU (kernels/reference/alone.hpp), a block of
// threads on a GPU (kernels/cuda/team.cuh). Members divide independent elements among themselves with
//   for (i = t.rank(); i < n; i += t.size())
// and never the terms of a floating-point sum: such a sum is made by one member, or by every member for itself. Integer
// sums and maxima have no order, so members may share them. What a team offers:
//   rank(), size()            this member's number and the number of members
//   sync()                    writes of all members before it are seen by all members behind it
//   total(n)                  sum of every member's n, to all (wraps modulo 2^64)
//   largest(k)                largest of every member's k, to all
//   before(flag, all)         how many members of smaller rank have the flag; all = how many have it
//   sum16(a, b, n)            the row reduction of docs/numerics.md over a[i] * b[i], to all
//   sum16_weighted(a, b, w, n)  over round(a[i] * b[i]) * w[i]
// All members call sync, total, largest, before and sum16 together. A team that has none of these (elements of
// kernels/cuda/team.cuh) serves functions that only divide elements.
#pragma once
