#include <Eigen/Dense>

int main() {
    const Eigen::MatrixXd a = Eigen::MatrixXd::Random(8, 8);
    const Eigen::VectorXd x = a.colPivHouseholderQr().solve(Eigen::VectorXd::Ones(8));
    return x.norm() > 0 ? 0 : 1;
}
