# What a draw takes.
plateau_bench(draw_bench sample compute base)
