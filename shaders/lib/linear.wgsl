// What linear kernels share that take operands of any element type, four values at a time.
#buffer x $X
#buffer w $W
#import linear_epilogue
