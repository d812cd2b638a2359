"""A matplotlib backend for a place without a display.

`plt.show()` saves every open figure as `figure-1.png`, `figure-2.png`, ... in the
current directory, says so, and closes it; a figure's own `show()` does it with that
one, `plt.show(block=False)` with none.  No file is ever overwritten.
"""

from itertools import count

from matplotlib._pylab_helpers import Gcf
from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg


class FigureManager(FigureManagerBase):
    def show(self):
        with new_file() as file:
            self.canvas.figure.savefig(file, format="png")
        print("saved " + file.name)
        Gcf.destroy(self.num)


class FigureCanvas(FigureCanvasAgg):
    manager_class = FigureManager  # since matplotlib 3.6


def show(*args, block=None, **kwargs):
    if block is False:  # by which `plt.pause()` shows each picture of a moving one
        return
    for manager in Gcf.get_all_fig_managers():
        manager.show()


def new_file():
    for number in count(1):
        try:
            return open("figure-%d.png" % number, "xb")
        except FileExistsError:
            pass
