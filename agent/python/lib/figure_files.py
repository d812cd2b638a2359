"""A matplotlib backend for a place without a display.

`plt.show()` saves every open figure as `figure-1.png`, `figure-2.png`, ... in the
current directory, says so, and closes it.  No file is ever overwritten.
"""

from itertools import count

from matplotlib._pylab_helpers import Gcf
from matplotlib.backend_bases import FigureManagerBase as FigureManager  # noqa: F401
from matplotlib.backends.backend_agg import FigureCanvasAgg as FigureCanvas  # noqa: F401


def show(*args, **kwargs):
    for manager in Gcf.get_all_fig_managers():
        with new_file() as file:
            manager.canvas.figure.savefig(file, format="png")
        print("saved " + file.name)
        Gcf.destroy(manager.num)


def new_file():
    for number in count(1):
        try:
            return open("figure-%d.png" % number, "xb")
        except FileExistsError:
            pass
