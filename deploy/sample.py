"""What `make run` executes in a sandboxed kernel: a table, a chart and a file."""

import matplotlib.pyplot as plt
import pandas as pd

sales = pd.DataFrame(
    {
        "month": ["Jan", "Feb", "Mar", "Apr", "May", "Jun"],
        "coffee": [420, 380, 450, 510, 560, 610],
        "tea": [310, 330, 300, 280, 260, 240],
    }
)
sales["total"] = sales["coffee"] + sales["tea"]
print(sales.to_string(index=False))
print(f"\nBest month: {sales.loc[sales['total'].idxmax(), 'month']}")

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
sales.plot(x="month", y=["coffee", "tea"], marker="o", ax=axes)
axes.set(title="Cups sold", xlabel="", ylabel="cups")
axes.set_ylim(bottom=0)
plt.show()

sales.to_csv("/mnt/data/sales.csv", index=False)
