// Sample data for people who have none at hand.

/** A table of two years of made-up sales, the same for everybody. */
export function sampleTable() {
  const lines = ["date,region,product,units,revenue"];
  let seed = 7;
  const random = () => (seed = (seed * 48271) % 2147483647) / 2147483647;
  for (let day = 0; day < 730; day += 1) {
    const date = new Date(Date.UTC(2024, 0, 1 + day));
    const season = 1 + 0.4 * Math.sin((date.getUTCMonth() / 6) * Math.PI) + day / 1500;
    for (const [region, share] of [["North", 1.2], ["South", 0.8], ["West", 1]]) {
      const units = Math.round(20 * season * share * (0.6 + 0.8 * random()));
      const [product, price] = [["Chair", 49.9], ["Desk", 189], ["Lamp", 24.5]][Math.floor(random() * 3)];
      lines.push([date.toISOString().slice(0, 10), region, product, units, (units * price).toFixed(2)].join(","));
    }
  }
  return `${lines.join("\n")}\n`;
}
