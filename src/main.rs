fn main() {
    bm::audit::launcher::run_if_launched(bm::audit::launcher::lend_nothing);
}
