"""What comparisons are shown with in tests: a machine and a cost curve, both made up."""

from core.measure.cost_curve import CostCurve, Point

ENVIRONMENT = {
    "device": "cpu", "hardware": "A machine", "cpus": 2, "threads": 1, "load_average": 0.5, "dtype": "float32",
    "model": {"name": "invented", "parameters": 1}, "versions": {"torch": "2"}, "system": "Linux",
}  # fmt: skip
CURVE = CostCurve(
    {"name": "invented", "parameters": 1}, "cpu", "float32",
    (Point(1, 32, (0.010, 0.011, 0.012)), Point(8, 256, (0.020, 0.022, 0.030))), (Point(8, 128, (0.02,)), Point(8, 1024, (0.05,))),
)  # fmt: skip
