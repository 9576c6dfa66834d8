// What linear kernels share that take operands of any element type, four values at a time.
#import blocks
#buffer x $X
#define W_BUFFER w
#define FORMAT $W
#use weight_rows
#import linear_epilogue
