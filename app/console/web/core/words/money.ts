/** Amounts in US dollars, with as many digits as tell them apart. */
const DOLLARS = new Intl.NumberFormat("en", { style: "currency", currency: "USD" });
const SMALL = new Intl.NumberFormat("en", { style: "currency", currency: "USD", minimumFractionDigits: 4, maximumFractionDigits: 4 });
const LEAST = 0.0001;

export function dollars(amount: number): string {
  if (amount > 0 && amount < LEAST) return `< ${SMALL.format(LEAST)}`;
  return amount > 0 && amount < 1 ? SMALL.format(amount) : DOLLARS.format(amount);
}
