// What the compiler proper is given: headers that cost it many allocations.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

template <int N> struct Chain {
    std::map<int, std::unique_ptr<Chain<N - 1>>> next;
    std::function<int(const Chain &)> count = [](const Chain &chain) {
        int sum = N;
        for (auto &[key, value] : chain.next)
            sum += key + value->count(*value);
        return sum;
    };
};

template <> struct Chain<0> {
    std::function<int(const Chain &)> count = [](const Chain &) { return 0; };
};

int main(int count, char **words) {
    std::unordered_map<std::string, std::vector<std::string>> found;
    for (std::string word : std::vector<std::string>(words, words + count))
        found[word.substr(0, 2)].push_back(word);
    Chain<12> chain;
    for (auto &[key, values] : found)
        std::sort(values.begin(), values.end());
    return chain.count(chain) + found.size();
}
