"""Debian's Chromium without a screen, and what tests ask of the dashboard's pages in it."""
import time

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

begun = {}


def begin(pictures, *more):
    """Starts it; `pictures`: where its pictures go; `more`: words of its command line."""
    options = Options()
    options.binary_location = "/usr/bin/chromium"
    for word in ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1440,1000", "--no-first-run",
                 "--disable-background-networking", "--disable-component-update", "--disable-sync", "--lang=en", *more]:
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    begun["driver"] = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    begun["pictures"] = pictures


def driver():
    return begun["driver"]


def end():
    driver().quit()


def wait(condition, seconds=10):
    return WebDriverWait(driver(), seconds, poll_frequency=0.05).until(lambda _: condition())


def script(text, *arguments):
    return driver().execute_script(text, *arguments)


def text():
    return script("return document.body.innerText")


def go(page):
    script("location.hash = arguments[0]", page)
    wait(lambda: script("return document.querySelector('main')?.dataset.page") == page)


def errors():
    return [entry["message"] for entry in driver().get_log("browser") if entry["level"] in ("SEVERE", "ERROR")]


def picture(name):
    driver().save_screenshot(f"{begun['pictures']}/{name}.png")


def rows(label):
    """The rows of a table: the text of each cell by the name of its column."""
    return script("""
        const table = document.querySelector(`table[aria-label="${arguments[0]}"]`);
        return table ? [...table.tBodies].flatMap((body) => [...body.rows]).filter((row) => row.cells[0].dataset.label !== undefined).map((row) => Object.fromEntries([...row.cells].map((cell) => [cell.dataset.label, cell.innerText.trim()]))) : null;
    """, label)


def picture_of(page, look):
    """A picture of a page, which has to fit the window's width."""
    go(page)
    time.sleep(0.6 if page == "plan" else 0.2)
    picture(f"{page}-{look}")
    wide = script("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 1, f"{page} ({look}) is {wide} pixels too wide"


def in_all_looks(show):
    """Calls `show` with the look that the pages have then."""
    show("light")
    colours = driver().find_element(By.CSS_SELECTOR, "button[aria-label^='Colours']")
    colours.click()
    show("dark")
    driver().execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": 400, "height": 850, "deviceScaleFactor": 1, "mobile": True})
    show("narrow")
    driver().execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
